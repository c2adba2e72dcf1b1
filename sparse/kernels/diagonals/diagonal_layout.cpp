#include <ATen/Dispatch.h>

#include <algorithm>
#include <vector>

#include "runtime/device/real_types.h"
#include "sparse/kernels/diagonals/diagonal_program.h"
#include "sparse/kernels/gpu_layout.h"
#include "sparse/kernels/layout_index.h"
#include "sparse/kernels/sparse_layout.h"
#include "sparse/kernels/work_split.h"

// T tokens  m outputs  n inputs  D the shorter side  P the longer side  K diagonals
namespace shoal {
namespace {

/// Minimum number of elements in a range for a thread.
constexpr int64_t kLeastPlaces = 256;

/// Rows in the order of a side of the matrix: element i is stored at `at[i]`, or at i.
template <class Real>
struct Side {
  Real* data;
  int64_t tokens, width;
  const int32_t* at;

  Real* token(int64_t t) const { return data + t * width; }
};

template <class Real>
void read_side(const Side<const Real>& side, int64_t token, Real* to) {
  const Real* from = side.token(token);
  if (side.at == nullptr) {
    std::copy_n(from, side.width, to);
    return;
  }
  for (int64_t i = 0; i < side.width; ++i) to[i] = from[side.at[i]];
}

/// Writes a range of elements plus the bias, which is in the order of `side`'s memory.
template <class Real>
void write_side(const Real* from, const IndexRange& range, const Real* bias, const Side<Real>& side,
                int64_t token) {
  Real* to = side.token(token);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t at = side.at == nullptr ? i : side.at[i];
    to[at] = bias == nullptr ? from[i] : from[i] + bias[at];
  }
}

/// Padded copies of both sides for some tokens, in the layout of the loops.
template <class Real>
class Rows {
 public:
  explicit Rows(const DiagonalProgram& program)
      : longer_stride_(whole_vectors(program.longer) + whole_vectors(program.shorter) +
                       kDiagonalPad),
        shorter_stride_(whole_vectors(program.shorter) + 2 * kDiagonalPad),
        program_(program),
        longer_(static_cast<size_t>(longer_stride_ * kDiagonalTokens)),
        shorter_(static_cast<size_t>(shorter_stride_ * kDiagonalTokens)) {}

  DiagonalRows<Real> longer() { return {longer_.data(), longer_stride_}; }
  DiagonalRows<Real> shorter() { return {shorter_.data() + kDiagonalPad, shorter_stride_}; }
  DiagonalRows<const Real> read_longer(const Side<const Real>& side, const IndexRange& tokens) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      Real* row = longer_.data() + (t - tokens.begin) * longer_stride_;
      read_side(side, t, row);
      std::copy_n(row, program_.shorter, row + program_.longer);
    }
    return {longer_.data(), longer_stride_};
  }
  DiagonalRows<const Real> read_shorter(const Side<const Real>& side, const IndexRange& tokens) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      read_side(side, t, shorter().data + (t - tokens.begin) * shorter_stride_);
    }
    return {shorter().data, shorter_stride_};
  }
  static void clear(const DiagonalRows<Real>& rows, const IndexRange& range) {
    const int64_t places = whole_vectors(range.end - range.begin);
    for (int64_t t = 0; t < kDiagonalTokens; ++t) {
      std::fill_n(rows.data + t * rows.stride + range.begin, places, Real(0));
    }
  }

 private:
  int64_t longer_stride_, shorter_stride_;
  const DiagonalProgram& program_;
  std::vector<Real> longer_, shorter_;
};

/// Calls work(rows, tokens, range) in parallel for groups of tokens and ranges of `places`.
template <class Real, class Work>
void for_groups(const DiagonalProgram& program, int64_t tokens, int64_t places, const Work& work) {
  const int64_t groups = divide_up(tokens, kDiagonalTokens);
  const int64_t ranges = ranges_beside(groups, places, kLeastPlaces);
  at::parallel_for(0, groups * ranges, 1, [&](int64_t first, int64_t last) {
    Rows<Real> rows(program);
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = i / ranges * kDiagonalTokens;
      work(rows, IndexRange{begin, std::min(tokens, begin + kDiagonalTokens)},
           piece_of(places, ranges, i % ranges, kDiagonalPad));
    }
  });
}

/// Diagonal layout.
class DiagonalLayout : public SparseLayout {
 public:
  DiagonalLayout(const torch::Tensor& mask_mn, const SparseOrder& order)
      : SparseLayout(mask_mn),
        is_tall_(rows() >= columns()),
        places_(order, device()),
        offset_K_(offsets_that_are_on(mask_mn).to(torch::kInt32)) {
    stride_ = whole_vectors(std::min(rows(), columns())) + 2 * kDiagonalPad;
  }

  torch::Tensor pack(const torch::Tensor& weight_mn) const override {
    const DiagonalProgram own = program();
    torch::Tensor values = torch::zeros({own.count, own.stride}, weight_mn.options());
    AT_DISPATCH_FLOATING_TYPES(weight_mn.scalar_type(), "sparse_linear", [&] {
      const auto* from = weight_mn.const_data_ptr<scalar_t>();
      auto* to = values.mutable_data_ptr<scalar_t>();
      for_weights([&](int64_t value, int64_t place) { to[value] = from[place]; });
    });
    return values;
  }
  torch::Tensor unpack(const torch::Tensor& values) const override {
    torch::Tensor dense = torch::zeros({rows(), columns()}, values.options());
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "sparse_linear", [&] {
      const auto* from = values.const_data_ptr<scalar_t>();
      auto* to = dense.mutable_data_ptr<scalar_t>();
      for_weights([&](int64_t value, int64_t place) { to[place] = from[value]; });
    });
    return dense;
  }
  torch::Tensor value_gradient(const torch::Tensor& x_Tn,
                               const torch::Tensor& dy_Tm) const override {
    const int64_t T = x_Tn.size(0), parts = gradient_parts(T);
    const DiagonalProgram own = program();
    torch::Tensor sums = torch::zeros({parts, own.count, own.stride}, x_Tn.options());
    AT_DISPATCH_FLOATING_TYPES(x_Tn.scalar_type(), "sparse_linear", [&] {
      const Side<const scalar_t> x = side(x_Tn.const_data_ptr<scalar_t>(), x_Tn, true);
      const Side<const scalar_t> dy = side(dy_Tm.const_data_ptr<scalar_t>(), dy_Tm, false);
      const int64_t ranges = ranges_beside(parts, own.shorter, kLeastPlaces);
      auto* gradient = sums.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, parts * ranges, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          add_dots(is_tall_ ? x : dy, is_tall_ ? dy : x,
                   piece_of(T, parts, i / ranges, kDiagonalTokens),
                   piece_of(own.shorter, ranges, i % ranges, kDiagonalPad),
                   gradient + i / ranges * own.count * own.stride);
        }
      });
    });
    return sum_of_parts(sums);
  }

 protected:
  torch::Tensor product(const torch::Tensor& x, const torch::Tensor& values,
                        const torch::Tensor& bias, bool is_transposed) const override {
    torch::Tensor y = torch::empty({x.size(0), is_transposed ? columns() : rows()}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_linear", [&] {
      multiply_sides(values, const_data_or_null<scalar_t>(bias),
                     side(x.const_data_ptr<scalar_t>(), x, !is_transposed),
                     side(y.mutable_data_ptr<scalar_t>(), y, is_transposed),
                     is_tall_ != is_transposed);
    });
    return y;
  }

 private:
  DiagonalProgram program() const {
    return {std::min(rows(), columns()), std::max(rows(), columns()), offset_K_.size(0),
            offset_K_.const_data_ptr<int32_t>(), stride_};
  }

  /// Calls work(index of the value, index in S) for all weights, row by row: it reads S in order,
  /// and a few cache lines of each diagonal.
  template <class Work>
  void for_weights(const Work& work) const {
    const DiagonalProgram own = program();
    const auto *begin = own.offsets, *end = begin + own.count;
    for (int64_t r = 0; r < rows(); ++r) {
      // Columns r + offset, or in a tall matrix r - offset, before and after wrapping around.
      for (const int64_t turn : {int64_t{0}, own.longer}) {
        const auto* first = is_tall_ ? std::upper_bound(begin, end, r + turn - own.shorter)
                                     : std::lower_bound(begin, end, turn - r);
        const auto* last = is_tall_ ? std::upper_bound(begin, end, r + turn)
                                    : std::lower_bound(begin, end, turn - r + own.longer);
        for (; first < last; ++first) {
          const int64_t column = is_tall_ ? r + turn - *first : r - turn + *first;
          work((first - begin) * own.stride + kDiagonalPad + (is_tall_ ? column : r),
               r * columns() + column);
        }
      }
    }
  }
  /// Product from one side of S to the other.
  template <class Real>
  void multiply_sides(const torch::Tensor& values, const Real* bias, const Side<const Real>& from,
                      const Side<Real>& to, bool goes_to_longer) const {
    const DiagonalProgram own = program();
    const Real* value = values.const_data_ptr<Real>();
    for_groups<Real>(
        own, from.tokens, to.width,
        [&](Rows<Real>& rows, const IndexRange& tokens, const IndexRange& range) {
          const DiagonalLoop loop{own, tokens.end - tokens.begin, range.begin, range.end};
          const DiagonalRows<Real> sums = goes_to_longer ? rows.longer() : rows.shorter();
          rows.clear(sums, range);
          if (goes_to_longer) {
            multiply_to_longer(loop, value, rows.read_shorter(from, tokens), sums);
          } else {
            multiply_to_shorter(loop, value, rows.read_longer(from, tokens), sums);
          }
          for (int64_t t = 0; t < loop.tokens; ++t) {
            write_side<Real>(sums.data + t * sums.stride, range, bias, to, tokens.begin + t);
          }
        });
  }
  template <class Real>
  void add_dots(const Side<const Real>& shorter, const Side<const Real>& longer,
                const IndexRange& tokens, const IndexRange& range, Real* gradient) const {
    const DiagonalProgram own = program();
    Rows<Real> rows(own);
    for (int64_t t = tokens.begin; t < tokens.end; t += kDiagonalTokens) {
      const IndexRange group{t, std::min(tokens.end, t + kDiagonalTokens)};
      add_diagonal_dots({own, group.end - t, range.begin, range.end},
                        rows.read_shorter(shorter, group), rows.read_longer(longer, group),
                        gradient);
    }
  }
  template <class Real>
  Side<Real> side(Real* data, const torch::Tensor& like, bool are_inputs) const {
    return {data, like.size(0), like.size(1),
            const_data_or_null<int32_t>(are_inputs ? places_.input_at : places_.output_at)};
  }

  bool is_tall_;
  SparsePlaces places_;
  torch::Tensor offset_K_;  ///< int32
  int64_t stride_ = 0;
};

}  // namespace

SparseLayoutPtr make_diagonal_layout(const torch::Tensor& mask_mn, const SparseOrder& order) {
  if (mask_mn.is_cuda()) return make_gpu_diagonal_layout(mask_mn, order);
  return std::make_shared<DiagonalLayout>(mask_mn, order);
}

}  // namespace shoal
