#include <ATen/Dispatch.h>
#include <ATen/ops/index_select.h>

#include <vector>

#include "sparse/kernels/blocks/block_program.h"
#include "sparse/kernels/gpu_layout.h"
#include "sparse/kernels/mask_cells.h"
#include "sparse/kernels/sparse_layout.h"
#include "sparse/kernels/work_split.h"

// T tokens  m outputs  n inputs  b side of a block  z blocks
namespace shoal {
namespace {

/// Tokens per piece of work. Products: as many as share the weights in the first-level cache.
/// Gradients: as many as keep x and dy in the second-level cache.
constexpr int64_t kBlockTokens = 64, kDotTokens = 256;

/// Positions of the active blocks in a grid, by rows.
struct BlockMatrix {
  std::vector<int32_t> start{0}, column;

  /// From bool [rows, columns].
  explicit BlockMatrix(const torch::Tensor& is_on) {
    for (int64_t i = 0; i < is_on.size(0); ++i) {
      const std::vector<int32_t> columns = index_values(is_on[i].nonzero().view({-1}));
      column.insert(column.end(), columns.begin(), columns.end());
      start.push_back(static_cast<int32_t>(column.size()));
    }
  }
};

template <class Real>
TokenRows<Real> tile_rows(Real* data, int64_t width, const IndexRange& tokens) {
  return {data + tokens.begin * width, width, width, tokens.end - tokens.begin};
}

torch::Tensor multiply_by_blocks(const BlockProgram& program, const torch::Tensor& x,
                                 const torch::Tensor& values, const torch::Tensor& bias) {
  const int64_t T = x.size(0), outputs = program.num_block_rows * program.size;
  torch::Tensor y = torch::empty({T, outputs}, x.options());
  const int64_t tiles = divide_up(T, kBlockTokens);
  const int64_t ranges = ranges_beside(tiles, program.num_block_rows, 1);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_linear", [&] {
    const auto* from = x.const_data_ptr<scalar_t>();
    auto* to = y.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, tiles * ranges, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = i / ranges * kBlockTokens;
        const IndexRange tokens{begin, std::min(T, begin + kBlockTokens)};
        const IndexRange rows = piece_of(program.num_block_rows, ranges, i % ranges, 1);
        multiply_blocks<scalar_t>(
            {program, values.const_data_ptr<scalar_t>(),
             bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr, rows.begin, rows.end},
            tile_rows(from, x.size(1), tokens), tile_rows(to, outputs, tokens));
      }
    });
  });
  return y;
}

/// Block layout, stored by rows and, for the gradient of x, also by columns.
class BlockLayout : public SparseLayout {
 public:
  BlockLayout(const torch::Tensor& mask_mn, int64_t size, const SparseOrder& order)
      : SparseLayout(mask_mn),
        size_(size),
        places_(order),
        by_output_(blocks_that_are_on(mask_mn, size)),
        by_input_(blocks_that_are_on(mask_mn, size).t()) {
    // Blocks of the transpose, as indices into the blocks of S.
    std::vector<int32_t> next = by_input_.start;
    block_of_transpose_.resize(by_input_.column.size());
    for (size_t z = 0; z < by_output_.column.size(); ++z) {
      const auto column = static_cast<size_t>(by_output_.column[z]);
      block_of_transpose_[static_cast<size_t>(next[column]++)] = static_cast<int32_t>(z);
    }
  }

  torch::Tensor pack(const torch::Tensor& weight_mn) const override {
    torch::Tensor values = empty_values(weight_mn.options());
    AT_DISPATCH_FLOATING_TYPES(weight_mn.scalar_type(), "sparse_linear", [&] {
      const auto* from = weight_mn.const_data_ptr<scalar_t>();
      auto* to = values.mutable_data_ptr<scalar_t>();
      for_blocks([&](int64_t block, int64_t place) {
        transpose_matrix<scalar_t>(
            {from + place, columns(), size_, size_, to + block * size_ * size_, size_});
      });
    });
    return values;
  }
  torch::Tensor unpack(const torch::Tensor& values) const override {
    torch::Tensor dense = torch::zeros({rows(), columns()}, values.options());
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "sparse_linear", [&] {
      const auto* from = values.const_data_ptr<scalar_t>();
      auto* to = dense.mutable_data_ptr<scalar_t>();
      for_blocks([&](int64_t block, int64_t place) {
        transpose_matrix<scalar_t>(
            {from + block * size_ * size_, size_, size_, size_, to + place, columns()});
      });
    });
    return dense;
  }
  torch::Tensor multiply(const torch::Tensor& x_Tn, const torch::Tensor& values,
                         const torch::Tensor& bias_m) const override {
    return multiply_by_blocks(program(), x_Tn, values, bias_m);
  }
  torch::Tensor multiply_transposed(const torch::Tensor& dy_Tm,
                                    const torch::Tensor& values) const override {
    const BlockProgram transposed{size_,
                                  columns() / size_,
                                  by_input_.start.data(),
                                  by_input_.column.data(),
                                  index_data(places_.output_at),
                                  index_data(places_.input_at)};
    return multiply_by_blocks(transposed, dy_Tm, values_of_transpose(values), {});
  }
  torch::Tensor value_gradient(const torch::Tensor& x_Tn,
                               const torch::Tensor& dy_Tm) const override {
    const torch::Tensor dy = in_order(dy_Tm);
    const int64_t T = x_Tn.size(0), parts = gradient_parts(T);
    const int64_t ranges = ranges_beside(parts, program().num_block_rows, 1);
    torch::Tensor sums = torch::zeros({parts, num_weights()}, x_Tn.options());
    AT_DISPATCH_FLOATING_TYPES(x_Tn.scalar_type(), "sparse_linear", [&] {
      const auto* x_data = x_Tn.const_data_ptr<scalar_t>();
      const auto* dy_data = dy.const_data_ptr<scalar_t>();
      auto* gradient = sums.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, parts * ranges, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const IndexRange part = piece_of(T, parts, i / ranges, kDotTokens);
          const IndexRange block_rows = piece_of(program().num_block_rows, ranges, i % ranges, 1);
          for (int64_t t = part.begin; t < part.end; t += kDotTokens) {
            const IndexRange tokens{t, std::min(part.end, t + kDotTokens)};
            add_block_dots<scalar_t>({program(), tile_rows(x_data, columns(), tokens),
                                      tile_rows(dy_data, rows(), tokens)},
                                     block_rows.begin, block_rows.end,
                                     gradient + i / ranges * num_weights());
          }
        }
      });
    });
    return sum_of_parts(sums);
  }

 private:
  BlockProgram program() const {
    return {size_,
            rows() / size_,
            by_output_.start.data(),
            by_output_.column.data(),
            index_data(places_.input_at),
            index_data(places_.output_at)};
  }
  torch::Tensor empty_values(const torch::TensorOptions& options) const {
    return torch::empty({num_weights()}, options);
  }
  /// dy with outputs in the order of S.
  torch::Tensor in_order(const torch::Tensor& dy_Tm) const {
    if (places_.output_at.empty()) return dy_Tm;
    const torch::Tensor at = torch::tensor(places_.output_at, torch::kInt32);
    return at::index_select(dy_Tm, 1, at);
  }
  /// Calls work(block, index of its first weight in S) for all blocks.
  template <class Work>
  void for_blocks(const Work& work) const {
    for (int64_t i = 0; i < rows() / size_; ++i) {
      for (int64_t z = by_output_.start[static_cast<size_t>(i)];
           z < by_output_.start[static_cast<size_t>(i) + 1]; ++z) {
        work(z, (i * columns() + by_output_.column[static_cast<size_t>(z)]) * size_);
      }
    }
  }
  torch::Tensor values_of_transpose(const torch::Tensor& values) const {
    torch::Tensor result = empty_values(values.options());
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "sparse_linear", [&] {
      const auto* from = values.const_data_ptr<scalar_t>();
      auto* to = result.mutable_data_ptr<scalar_t>();
      const int64_t weights = size_ * size_;
      for (size_t z = 0; z < block_of_transpose_.size(); ++z) {
        transpose_matrix<scalar_t>({from + block_of_transpose_[z] * weights, size_, size_, size_,
                                    to + static_cast<int64_t>(z) * weights, size_});
      }
    });
    return result;
  }

  int64_t size_;
  SparsePlaces places_;
  BlockMatrix by_output_, by_input_;
  std::vector<int32_t> block_of_transpose_;
};

}  // namespace

SparseLayoutPtr make_block_layout(const torch::Tensor& mask_mn, int64_t size,
                                  const SparseOrder& order) {
  if (mask_mn.is_cuda()) return make_gpu_block_layout(mask_mn.contiguous(), size, order);
  return std::make_shared<BlockLayout>(mask_mn.contiguous(), size, order);
}

}  // namespace shoal
