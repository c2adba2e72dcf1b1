#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "models/blocks/layer_norm.h"
#include "models/blocks/partial_sums.h"
#include "models/blocks/tile_kernels.h"

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

template <class Real>
struct ForwardRows {
  const Real* x;
  Real* y;
  RowStatistics<Real> statistics;
};

template <class Real>
void forward_tiles(const Tiling& tiling, const NormParameters<Real>& norm, bool transposed,
                   const ForwardRows<Real>& whole) {
  at::parallel_for(0, tiling.num_tiles, 1, [&](int64_t first, int64_t last) {
    std::vector<Real> scratch(
        static_cast<size_t>(transposed ? tiling.rows_per_tile * tiling.columns : 0));
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i * tiling.rows_per_tile, rows = tiling.rows_of(i);
      Real* out = whole.y + row * tiling.columns;
      normalise_rows(norm, whole.x + row * tiling.columns, rows, transposed ? scratch.data() : out,
                     {whole.statistics.mean_R + row, whole.statistics.rstd_R + row});
      if (transposed) transpose_tile(scratch.data(), rows, tiling.columns, out);
    }
  });
}

using Tensors3 = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

Tensors3 forward_cpu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                     bool transposed) {
  const Tiling tiling(x, transposed);
  torch::Tensor y = transposed ? torch::empty({x.size(0), x.size(2), x.size(1)}, x.options())
                               : torch::empty_like(x);
  torch::Tensor mean_N = torch::empty({tiling.rows}, x.options());
  torch::Tensor rstd_N = torch::empty({tiling.rows}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "layer_norm_forward", [&] {
    const NormParameters<scalar_t> norm{weight.const_data_ptr<scalar_t>(),
                                        bias.const_data_ptr<scalar_t>(), tiling.columns};
    const ForwardRows<scalar_t> whole{x.const_data_ptr<scalar_t>(),
                                      y.data_ptr<scalar_t>(),
                                      {mean_N.data_ptr<scalar_t>(), rstd_N.data_ptr<scalar_t>()}};
    forward_tiles(tiling, norm, transposed, whole);
  });
  return {y, mean_N, rstd_N};
}

template <class Real>
void backward_tiles(const Tiling& tiling, const NormParameters<Real>& norm, bool transposed,
                    const NormGradient<Real>& whole, PartialSums& sums) {
  at::parallel_for(0, tiling.num_tiles, 1, [&](int64_t first, int64_t last) {
    const int64_t columns = tiling.columns;
    std::vector<Real> scratch(static_cast<size_t>(transposed ? tiling.rows_per_tile * columns : 0));
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i * tiling.rows_per_tile, rows = tiling.rows_of(i);
      NormGradient<Real> tile = whole;
      tile.x_RC += row * columns;
      tile.dx_RC += row * columns;
      tile.grad_RC += row * columns;
      tile.mean_R += row;
      tile.rstd_R += row;
      tile.weight_grad_C = sums.own<Real>(0);
      tile.bias_grad_C = sums.own<Real>(1);
      if (transposed) {
        transpose_tile(tile.grad_RC, columns, rows, scratch.data());
        tile.grad_RC = scratch.data();
      }
      normalise_rows_backward(norm, tile, rows);
    }
  });
}

Tensors3 backward_cpu(const torch::Tensor& grad, const torch::Tensor& x,
                      const torch::Tensor& weight, const torch::Tensor& mean_N,
                      const torch::Tensor& rstd_N, bool transposed) {
  const Tiling tiling(x, transposed);
  torch::Tensor dx = torch::empty_like(x);
  PartialSums sums({weight.sizes(), weight.sizes()}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "layer_norm_backward", [&] {
    const NormParameters<scalar_t> norm{weight.const_data_ptr<scalar_t>(), nullptr, tiling.columns};
    const NormGradient<scalar_t> whole{x.const_data_ptr<scalar_t>(),
                                       mean_N.const_data_ptr<scalar_t>(),
                                       rstd_N.const_data_ptr<scalar_t>(),
                                       grad.const_data_ptr<scalar_t>(),
                                       nullptr,
                                       dx.data_ptr<scalar_t>(),
                                       nullptr,
                                       nullptr};
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
