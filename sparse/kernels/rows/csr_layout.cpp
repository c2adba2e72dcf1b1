#include <ATen/Dispatch.h>

#include <limits>
#include <numeric>
#include <vector>

#include "runtime/device/real_types.h"
#include "sparse/kernels/gpu_layout.h"
#include "sparse/kernels/rows/row_program.h"
#include "sparse/kernels/sparse_layout.h"
#include "sparse/kernels/work_split.h"

// T tokens  m outputs  n inputs  z weights
namespace shoal {
namespace {

constexpr int64_t kRowTileTokens = kGroupTokens * kTileGroups;
/// Up to this number, tokens are multiplied one by one.
constexpr int64_t kFewRowTokens = 3;
constexpr int64_t kLeastOutputs = 64;

struct RowMatrix {
  int64_t num_inputs;
  std::vector<int32_t> start, input;

  RowProgram program() const {
    return {static_cast<int64_t>(start.size()) - 1, num_inputs, start.data(), input.data()};
  }
};

/// at::index_select with `index`, without its bounds checks of each element.
torch::Tensor gathered(const torch::Tensor& from, const std::vector<int32_t>& index) {
  TORCH_CHECK(from.is_contiguous(), "sparse weights must be contiguous");
  torch::Tensor result = torch::empty({static_cast<int64_t>(index.size())}, from.options());
  AT_DISPATCH_FLOATING_TYPES(from.scalar_type(), "sparse_linear", [&] {
    const auto* data = from.const_data_ptr<scalar_t>();
    auto* to = result.mutable_data_ptr<scalar_t>();
    for (size_t z = 0; z < index.size(); ++z) to[z] = data[index[z]];
  });
  return result;
}

template <class Real>
void multiply_tiles(const RowProduct<Real>& product, const torch::Tensor& x,
                    const torch::Tensor& y) {
  const RowProgram& program = product.program;
  const int64_t T = x.size(0), m = program.num_outputs, n = program.num_inputs;
  const int64_t tiles = divide_up(T, kRowTileTokens);
  const int64_t ranges = ranges_beside(tiles, m, kLeastOutputs);
  const TokenRows<const Real> from{x.const_data_ptr<Real>(), n, n, T};
  const TokenRows<Real> to{y.mutable_data_ptr<Real>(), m, m, T};
  at::parallel_for(0, tiles * ranges, 1, [&](int64_t first, int64_t last) {
    const torch::Tensor tile = torch::empty({n * kRowTileTokens}, x.options());
    Real* tile_data = tile.mutable_data_ptr<Real>();
    int64_t in_tile = -1;
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = i / ranges * kRowTileTokens;
      const int64_t tokens = std::min(kRowTileTokens, T - begin);
      if (in_tile != begin) {
        transpose_tokens(from.part(begin, tokens), groups_of(tokens), tile_data);
      }
      in_tile = begin;
      const IndexRange outputs = piece_of(m, ranges, i % ranges, /*unit=*/16);
      multiply_rows(product, tile_data, outputs.begin, outputs.end, to.part(begin, tokens));
    }
  });
}

template <class Real>
void multiply_few(const RowProduct<Real>& product, const torch::Tensor& x, const torch::Tensor& y) {
  const RowProgram& program = product.program;
  const int64_t T = x.size(0), m = program.num_outputs, n = program.num_inputs;
  const Real* from = x.const_data_ptr<Real>();
  Real* to = y.mutable_data_ptr<Real>();
  at::parallel_for(0, m, /*grain_size=*/256, [&](int64_t first, int64_t last) {
    for (int64_t t = 0; t < T; ++t) {
      multiply_rows_once(product, from + t * n, first, last, to + t * m);
    }
  });
}

torch::Tensor multiply_by_rows(const RowProgram& program, const torch::Tensor& x,
                               const torch::Tensor& values, const torch::Tensor& bias) {
  torch::Tensor y = torch::empty({x.size(0), program.num_outputs}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_linear", [&] {
    const RowProduct<scalar_t> product{program, values.const_data_ptr<scalar_t>(),
                                       const_data_or_null<scalar_t>(bias)};
    (x.size(0) <= kFewRowTokens ? multiply_few<scalar_t> : multiply_tiles<scalar_t>)(product, x, y);
  });
  return y;
}

/// Accumulates the gradient of the values of some outputs over some tokens.
template <class Real>
void add_dots(const RowProgram& program, const TokenRows<const Real>& x,
              const TokenRows<const Real>& dy, const IndexRange& outputs, Real* gradient) {
  const int64_t rows = outputs.end - outputs.begin;
  std::vector<Real> x_tile(static_cast<size_t>(x.width * kRowTileTokens)),
      dy_tile(static_cast<size_t>(rows * kRowTileTokens));
  for (int64_t t = 0; t < x.tokens; t += kRowTileTokens) {
    const int64_t tokens = std::min(kRowTileTokens, x.tokens - t), groups = groups_of(tokens);
    const TokenRows<const Real> dy_part{dy.data + t * dy.stride + outputs.begin, dy.stride, rows,
                                        tokens};
    transpose_tokens(x.part(t, tokens), groups, x_tile.data());
    transpose_tokens(dy_part, groups, dy_tile.data());
    add_row_dots({program, dy_tile.data(), x_tile.data(), groups}, outputs.begin, outputs.end,
                 gradient);
  }
}

/// CSR layout for any mask, stored by rows and, for the gradient of x, also by columns.
class CsrLayout : public SparseLayout {
 public:
  CsrLayout(const torch::Tensor& mask_mn, const SparseOrder& order)
      : SparseLayout(mask_mn), by_output_{columns(), {0}, {}}, by_input_{rows(), {}, {}} {
    add_rows(mask_mn, order);
    transpose_rows();
  }

  torch::Tensor pack(const torch::Tensor& weight_mn) const override {
    return gathered(weight_mn, place_);
  }
  torch::Tensor unpack(const torch::Tensor& values) const override {
    torch::Tensor dense = torch::zeros({rows(), columns()}, values.options());
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "sparse_linear", [&] {
      const auto* from = values.const_data_ptr<scalar_t>();
      auto* to = dense.mutable_data_ptr<scalar_t>();
      for (size_t z = 0; z < place_.size(); ++z) to[place_[z]] = from[z];
    });
    return dense;
  }
  torch::Tensor value_gradient(const torch::Tensor& x_Tn,
                               const torch::Tensor& dy_Tm) const override {
    const int64_t T = x_Tn.size(0), parts = gradient_parts(T);
    const int64_t ranges = ranges_beside(parts, rows(), kLeastOutputs);
    torch::Tensor sums = torch::zeros({parts, num_weights()}, x_Tn.options());
    const RowProgram program = by_output_.program();
    AT_DISPATCH_FLOATING_TYPES(x_Tn.scalar_type(), "sparse_linear", [&] {
      const TokenRows<const scalar_t> x{x_Tn.const_data_ptr<scalar_t>(), columns(), columns(), T};
      const TokenRows<const scalar_t> dy{dy_Tm.const_data_ptr<scalar_t>(), rows(), rows(), T};
      auto* gradient = sums.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, parts * ranges, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const IndexRange tokens = piece_of(T, parts, i / ranges, kRowTileTokens);
          const int64_t count = tokens.end - tokens.begin;
          add_dots<scalar_t>(program, x.part(tokens.begin, count), dy.part(tokens.begin, count),
                             piece_of(rows(), ranges, i % ranges, /*unit=*/1),
                             gradient + i / ranges * num_weights());
        }
      });
    });
    return sum_of_parts(sums);
  }

 protected:
  torch::Tensor product(const torch::Tensor& x, const torch::Tensor& values,
                        const torch::Tensor& bias, bool is_transposed) const override {
    if (!is_transposed) return multiply_by_rows(by_output_.program(), x, values, bias);
    return multiply_by_rows(by_input_.program(), x, gathered(values, value_of_transpose_), bias);
  }

 private:
  void add_rows(const torch::Tensor& mask_mn, const SparseOrder& order) {
    const auto as_index = [](const torch::Tensor& at) {
      return at.defined() ? at.to(torch::kInt64).contiguous() : at;
    };
    const torch::Tensor whole = mask_mn.contiguous(), inputs = as_index(order.inputs),
                        outputs = as_index(order.outputs);
    const auto* mask = whole.const_data_ptr<bool>();
    const auto *input_at = const_data_or_null<int64_t>(inputs),
               *row_of = const_data_or_null<int64_t>(outputs);
    by_output_.input.reserve(static_cast<size_t>(num_weights()));
    place_.reserve(static_cast<size_t>(num_weights()));
    for (int64_t j = 0; j < rows(); ++j) {
      const int64_t row = row_of == nullptr ? j : row_of[j];
      for (int64_t c = 0; c < columns(); ++c) {
        if (!mask[row * columns() + c]) continue;
        by_output_.input.push_back(static_cast<int32_t>(input_at == nullptr ? c : input_at[c]));
        place_.push_back(static_cast<int32_t>(row * columns() + c));
      }
      by_output_.start.push_back(static_cast<int32_t>(place_.size()));
    }
  }
  /// Sorts the weights by their inputs (counting sort).
  void transpose_rows() {
    by_input_.start.assign(static_cast<size_t>(columns()) + 1, 0);
    for (const int32_t input : by_output_.input) ++by_input_.start[static_cast<size_t>(input) + 1];
    std::partial_sum(by_input_.start.begin(), by_input_.start.end(), by_input_.start.begin());
    std::vector<int32_t> next = by_input_.start;
    by_input_.input.resize(place_.size());
    value_of_transpose_.resize(place_.size());
    for (int32_t j = 0; j < rows(); ++j) {
      const auto row = static_cast<size_t>(j);
      for (int32_t z = by_output_.start[row]; z < by_output_.start[row + 1]; ++z) {
        const int32_t to = next[static_cast<size_t>(by_output_.input[static_cast<size_t>(z)])]++;
        by_input_.input[static_cast<size_t>(to)] = j;
        value_of_transpose_[static_cast<size_t>(to)] = z;
      }
    }
  }

  RowMatrix by_output_, by_input_;
  std::vector<int32_t> place_;               ///< of each value in S
  std::vector<int32_t> value_of_transpose_;  ///< of each weight of by_input_
};

}  // namespace

SparseLayoutPtr make_csr_layout(const torch::Tensor& mask_mn, const SparseOrder& order) {
  TORCH_CHECK(mask_mn.numel() <= std::numeric_limits<int32_t>::max(),
              "sparse rows: ", mask_mn.sizes(), " weights are too many to be counted in 32 bits");
  if (mask_mn.is_cuda()) return make_gpu_csr_layout(mask_mn, order);
  return std::make_shared<CsrLayout>(mask_mn, order);
}

}  // namespace shoal
