#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "models/kernels/layer_norm.h"
#include "models/kernels/partial_sums.h"
#include "models/kernels/tile_kernels.h"
#include "runtime/device/real_types.h"
#include "runtime/kernels/bfloat16_rows.h"

// B images  S tokens  C width  N rows
namespace shoal {
namespace {

/// x as tiles of rows: whole images where the result is transposed, else runs of rows.
struct Tiling {
  int64_t rows, columns, rows_per_tile, num_tiles;

  Tiling(const torch::Tensor& x, bool transposed) {
    columns = x.size(-1);
    rows = columns == 0 ? 0 : x.numel() / columns;
    rows_per_tile = transposed ? std::max<int64_t>(1, x.size(1)) : 64;
    num_tiles = (rows + rows_per_tile - 1) / rows_per_tile;
  }
  int64_t rows_of(int64_t tile) const {
    return std::min(rows_per_tile, rows - tile * rows_per_tile);
  }
};

using vector_math::Real;

template <class Value>
struct ForwardRows {
  const Value* x;
  Value* y;
  RowStatistics<Real<Value>> statistics;
};

template <class Value>
void forward_tiles(const Tiling& tiling, const NormParameters<Real<Value>>& norm, bool transposed,
                   const ForwardRows<Value>& whole) {
  at::parallel_for(0, tiling.num_tiles, 1, [&](int64_t first, int64_t last) {
    std::vector<Real<Value>> normed(
        static_cast<size_t>(transposed ? tiling.rows_per_tile * tiling.columns : 0));
    std::vector<Real<Value>> wide_x, wide_y;
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i * tiling.rows_per_tile, rows = tiling.rows_of(i);
      const int64_t at = row * tiling.columns, size = rows * tiling.columns;
      Real<Value>* out = start_wide(whole.y + at, size, wide_y);
      normalise_rows(norm, wide(whole.x + at, size, wide_x), rows, transposed ? normed.data() : out,
                     {whole.statistics.mean_R + row, whole.statistics.rstd_R + row});
      if (transposed) transpose_tile(normed.data(), rows, tiling.columns, out);
      finish_wide(out, size, whole.y + at);
    }
  });
}

using Tensors3 = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

Tensors3 forward_cpu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                     bool transposed) {
  const Tiling tiling(x, transposed);
  torch::Tensor y = transposed ? torch::empty({x.size(0), x.size(2), x.size(1)}, x.options())
                               : torch::empty_like(x);
  // Of bfloat16 the parameters and statistics are float32.
  torch::Tensor mean_N = torch::empty({tiling.rows}, weight.options());
  torch::Tensor rstd_N = torch::empty({tiling.rows}, weight.options());
  for_real_type(x, "layer_norm", [&]<class Value, class Sum>(Value, Sum) {
    const NormParameters<Sum> norm{weight.const_data_ptr<Sum>(), bias.const_data_ptr<Sum>(),
                                   tiling.columns};
    const ForwardRows<Value> whole{
        const_data<Value>(x), data<Value>(y), {mean_N.data_ptr<Sum>(), rstd_N.data_ptr<Sum>()}};
    forward_tiles(tiling, norm, transposed, whole);
  });
  return {y, mean_N, rstd_N};
}

template <class Value>
struct BackwardRows {
  const Value *x, *grad;
  const Real<Value>*mean_N, *rstd_N;
  Value* dx;
};

template <class Value>
void backward_tiles(const Tiling& tiling, const NormParameters<Real<Value>>& norm, bool transposed,
                    const BackwardRows<Value>& whole, PartialSums& sums) {
  using Sum = Real<Value>;
  at::parallel_for(0, tiling.num_tiles, 1, [&](int64_t first, int64_t last) {
    const int64_t columns = tiling.columns;
    std::vector<Sum> turned(static_cast<size_t>(transposed ? tiling.rows_per_tile * columns : 0));
    std::vector<Sum> wide_x, wide_grad, wide_dx;
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i * tiling.rows_per_tile, rows = tiling.rows_of(i);
      const int64_t at = row * columns, size = rows * columns;
      const Sum* grad = wide(whole.grad + at, size, wide_grad);
      if (transposed) {
        transpose_tile(grad, columns, rows, turned.data());
        grad = turned.data();
      }
      Sum* dx = start_wide(whole.dx + at, size, wide_dx);
      normalise_rows_backward(norm,
                              {wide(whole.x + at, size, wide_x), whole.mean_N + row,
                               whole.rstd_N + row, grad, dx, sums.own<Sum>(0), sums.own<Sum>(1)},
                              rows);
      finish_wide(dx, size, whole.dx + at);
    }
  });
}

Tensors3 backward_cpu(const torch::Tensor& grad, const torch::Tensor& x,
                      const torch::Tensor& weight, const torch::Tensor& mean_N,
                      const torch::Tensor& rstd_N, bool transposed) {
  const Tiling tiling(x, transposed);
  torch::Tensor dx = torch::empty_like(x);
  PartialSums sums({weight.sizes(), weight.sizes()}, weight.options());
  for_real_type(x, "layer_norm", [&]<class Value, class Sum>(Value, Sum) {
    const NormParameters<Sum> norm{weight.const_data_ptr<Sum>(), nullptr, tiling.columns};
    const BackwardRows<Value> whole{const_data<Value>(x), const_data<Value>(grad),
                                    mean_N.const_data_ptr<Sum>(), rstd_N.const_data_ptr<Sum>(),
                                    data<Value>(dx)};
    backward_tiles(tiling, norm, transposed, whole, sums);
  });
  const std::vector<torch::Tensor> totals = sums.totals();
  return {dx, totals[0], totals[1]};
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("layer_norm_forward", forward_cpu);
  m.impl("layer_norm_backward", backward_cpu);
}

}  // namespace shoal
