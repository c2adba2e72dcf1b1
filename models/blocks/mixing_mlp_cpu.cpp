#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "models/kernels/partial_sums.h"
#include "models/kernels/tile_kernels.h"
#include "runtime/kernels/activation_rows.h"
#include "runtime/kernels/gemm.h"

// B images  S tokens  C width  H hidden  N = B S rows  R rows of a tile
//
// Everything between the block's input and output happens tile by tile in the second cache: norm,
// product, bias and activation, product onto the residual. A tile is an image where tokens are
// mixed, W [H, S] times n [S, C], and a run of rows where channels are mixed, n [R, C] times
// Wᵀ [C, H].
namespace shoal {
namespace {

struct Tiling {
  bool over_tokens;
  int64_t columns, hidden, rows, rows_per_tile, num_tiles;

  Tiling(const torch::Tensor& x, const torch::Tensor& fc1_weight, bool tokens)
      : over_tokens(tokens), columns(x.size(2)), hidden(fc1_weight.size(0)) {
    constexpr int64_t kHiddenElements = 65536;  // of a tile; two such tiles fit the second cache
    rows = x.size(0) * x.size(1);
    rows_per_tile = tokens ? std::max<int64_t>(1, x.size(1))
                           : std::clamp<int64_t>(kHiddenElements / hidden, 16, 256);
    num_tiles = columns == 0 ? 0 : (rows + rows_per_tile - 1) / rows_per_tile;
  }
  int64_t rows_of(int64_t tile) const {
    return std::min(rows_per_tile, rows - tile * rows_per_tile);
  }
  /// The hidden tile is [hidden, columns] over tokens, [R, hidden] over channels.
  int64_t hidden_rows(int64_t R) const { return over_tokens ? hidden : R; }
  int64_t hidden_columns() const { return over_tokens ? columns : hidden; }
  int64_t hidden_tile() const { return over_tokens ? hidden * columns : rows_per_tile * hidden; }
  std::vector<int64_t> hidden_sizes(const torch::Tensor& x) const {
    return over_tokens ? std::vector<int64_t>{x.size(0), hidden, columns}
                       : std::vector<int64_t>{rows, hidden};
  }
};

template <class Real>
struct Weights {
  NormParameters<Real> norm;
  const Real *fc1, *fc1_bias, *fc2, *fc2_bias;

  Weights(at::TensorList weights, int64_t columns)
      : norm{weights[0].const_data_ptr<Real>(), weights[1].const_data_ptr<Real>(), columns},
        fc1(weights[2].const_data_ptr<Real>()),
        fc1_bias(weights[3].const_data_ptr<Real>()),
        fc2(weights[4].const_data_ptr<Real>()),
        fc2_bias(weights[5].const_data_ptr<Real>()) {}
};

/// One tile on its way forward; `derivative` is the hidden tile before the activation, and after it
/// the activation's derivative if `keep_derivative`.
template <class Real>
struct ForwardTile {
  const Real* x;
  Real *normed, *mean, *rstd, *derivative, *activation, *y;
  bool keep_derivative;
};

template <class Real>
void forward_tile(const Tiling& t, const Weights<Real>& w, const ForwardTile<Real>& tile, int64_t R,
                  Activation activation) {
  const int64_t C = t.columns, H = t.hidden;
  normalise_rows(w.norm, tile.x, R, tile.normed, {tile.mean, tile.rstd});
  if (t.over_tokens) {
    gemm(H, C, R, {w.fc1, R}, {tile.normed, C}, Real(0), tile.derivative, C);
  } else {
    gemm(R, H, C, {tile.normed, C}, {w.fc1, C, true}, Real(0), tile.derivative, H);
  }
  const ActivationRows<Real> rows{
      tile.derivative, tile.activation,      w.fc1_bias, t.hidden_columns(), H,
      !t.over_tokens,  tile.keep_derivative, activation};
  activate_rows(rows, 0, t.hidden_rows(R));
  if (t.over_tokens) {
    add_row_bias(tile.x, w.fc2_bias, R, C, tile.y);
    gemm(R, C, H, {w.fc2, H}, {tile.activation, C}, Real(1), tile.y, C);
  } else {
    add_column_bias(tile.x, w.fc2_bias, R, C, tile.y);
    gemm(R, C, H, {tile.activation, H}, {w.fc2, H, true}, Real(1), tile.y, C);
  }
}

template <class Real>
struct ForwardBuffers {
  const Real* x;
  Real *mean, *rstd, *y;
  Real *activation, *derivative;  ///< nullptr unless they are kept
};

template <class Real>
void forward_tiles(const Tiling& t, const Weights<Real>& w, const ForwardBuffers<Real>& all,
                   Activation activation) {
  const bool keep = all.activation != nullptr;
  at::parallel_for(0, t.num_tiles, 1, [&](int64_t first, int64_t last) {
    const size_t tile_size = static_cast<size_t>(t.rows_per_tile * t.columns);
    const size_t hidden_size = static_cast<size_t>(keep ? 0 : t.hidden_tile());
    std::vector<Real> normed(tile_size), hidden(2 * hidden_size);
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i * t.rows_per_tile, at = row * t.columns, h = i * t.hidden_tile();
      forward_tile(t, w,
                   {all.x + at, normed.data(), all.mean + row, all.rstd + row,
                    keep ? all.derivative + h : hidden.data(),
                    keep ? all.activation + h : hidden.data() + hidden_size, all.y + at, keep},
                   t.rows_of(i), activation);
    }
  });
}

std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor> forward_cpu(
    const torch::Tensor& x, at::TensorList weights, bool over_tokens, int64_t activation,
    bool keep) {
  const Tiling tiling(x, weights[2], over_tokens);
  torch::Tensor y = torch::empty_like(x);
  torch::Tensor mean_N = torch::empty({tiling.rows}, x.options());
  torch::Tensor rstd_N = torch::empty({tiling.rows}, x.options());
  const auto kept = keep ? tiling.hidden_sizes(x) : std::vector<int64_t>{0};
  torch::Tensor hidden = torch::empty(kept, x.options());
  torch::Tensor derivative = torch::empty(kept, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "mixing_mlp_forward", [&] {
    const ForwardBuffers<scalar_t> all{x.const_data_ptr<scalar_t>(),
                                       mean_N.data_ptr<scalar_t>(),
                                       rstd_N.data_ptr<scalar_t>(),
                                       y.data_ptr<scalar_t>(),
                                       keep ? hidden.data_ptr<scalar_t>() : nullptr,
                                       keep ? derivative.data_ptr<scalar_t>() : nullptr};
    forward_tiles(tiling, Weights<scalar_t>(weights, tiling.columns), all,
                  static_cast<Activation>(activation));
  });
  return {y, mean_N, rstd_N, hidden, derivative};
}

/// This thread's parts of the weight gradients, added to.
template <class Real>
struct WeightGrads {
  Real *norm, *norm_bias, *fc1, *fc1_bias, *fc2, *fc2_bias;
};

/// One tile on its way back; `hidden_grad` and `normed_grad` are scratch.
template <class Real>
struct BackwardTile {
  const Real *x, *mean, *rstd, *activation, *derivative, *grad;
  Real *normed, *normed_grad, *hidden_grad, *dx;
};

/// Through the second linear layer and the activation: hidden_grad and its parts of the gradients.
template <class Real>
void backward_to_hidden(const Tiling& t, const Weights<Real>& w, const BackwardTile<Real>& tile,
                        const WeightGrads<Real>& sums, int64_t R) {
  const int64_t C = t.columns, H = t.hidden;
  if (t.over_tokens) {
    add_row_sums(tile.grad, R, C, sums.fc2_bias);
    gemm(R, H, C, {tile.grad, C}, {tile.activation, C, true}, Real(1), sums.fc2, H);
    gemm(H, C, R, {w.fc2, H, true}, {tile.grad, C}, Real(0), tile.hidden_grad, C);
  } else {
    add_column_sums(tile.grad, R, C, sums.fc2_bias);
    gemm(C, H, R, {tile.grad, C, true}, {tile.activation, H}, Real(1), sums.fc2, H);
    gemm(R, H, C, {tile.grad, C}, {w.fc2, H}, Real(0), tile.hidden_grad, H);
  }
  const ActivationGradientRows<Real> rows{tile.hidden_grad, tile.derivative, t.hidden_columns(), H,
                                          !t.over_tokens};
  activate_rows_backward(rows, 0, t.hidden_rows(R), sums.fc1_bias);
}

template <class Real>
void backward_tile(const Tiling& t, const Weights<Real>& w, const BackwardTile<Real>& tile,
                   const WeightGrads<Real>& sums, int64_t R) {
  const int64_t C = t.columns, H = t.hidden;
  backward_to_hidden(t, w, tile, sums, R);
  renormalise_rows(w.norm, tile.x, R, tile.normed, {tile.mean, tile.rstd});
  if (t.over_tokens) {
    gemm(H, R, C, {tile.hidden_grad, C}, {tile.normed, C, true}, Real(1), sums.fc1, R);
    gemm(R, C, H, {w.fc1, R, true}, {tile.hidden_grad, C}, Real(0), tile.normed_grad, C);
  } else {
    gemm(H, C, R, {tile.hidden_grad, H, true}, {tile.normed, C}, Real(1), sums.fc1, C);
    gemm(R, C, H, {tile.hidden_grad, H}, {w.fc1, C}, Real(0), tile.normed_grad, C);
  }
  normalise_rows_backward(w.norm,
                          {tile.x, tile.mean, tile.rstd, tile.normed_grad, tile.grad, tile.dx,
                           sums.norm, sums.norm_bias},
                          R);
}

template <class Real>
void backward_tiles(const Tiling& t, const Weights<Real>& w, const BackwardTile<Real>& all,
                    PartialSums& sums) {
  at::parallel_for(0, t.num_tiles, 1, [&](int64_t first, int64_t last) {
    const size_t size = static_cast<size_t>(t.rows_per_tile * t.columns);
    std::vector<Real> normed(size), normed_grad(size);
    std::vector<Real> hidden_grad(static_cast<size_t>(t.hidden_tile()));
    const WeightGrads<Real> own{sums.own<Real>(0), sums.own<Real>(1), sums.own<Real>(2),
                                sums.own<Real>(3), sums.own<Real>(4), sums.own<Real>(5)};
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i * t.rows_per_tile, at = row * t.columns, h = i * t.hidden_tile();
      backward_tile(
          t, w,
          {all.x + at, all.mean + row, all.rstd + row, all.activation + h, all.derivative + h,
           all.grad + at, normed.data(), normed_grad.data(), hidden_grad.data(), all.dx + at},
          own, t.rows_of(i));
    }
  });
}

std::vector<torch::Tensor> backward_cpu(const torch::Tensor& grad, at::TensorList saved,
                                        at::TensorList weights, bool over_tokens) {
  const torch::Tensor& x = saved[0];
  const Tiling tiling(x, weights[2], over_tokens);
  torch::Tensor dx = torch::empty_like(x);
  std::vector<at::IntArrayRef> shapes;
  for (const torch::Tensor& weight : weights) shapes.push_back(weight.sizes());
  PartialSums sums(shapes, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "mixing_mlp_backward", [&] {
    const BackwardTile<scalar_t> all{x.const_data_ptr<scalar_t>(),
                                     saved[1].const_data_ptr<scalar_t>(),
                                     saved[2].const_data_ptr<scalar_t>(),
                                     saved[3].const_data_ptr<scalar_t>(),
                                     saved[4].const_data_ptr<scalar_t>(),
                                     grad.const_data_ptr<scalar_t>(),
                                     nullptr,
                                     nullptr,
                                     nullptr,
                                     dx.data_ptr<scalar_t>()};
    backward_tiles(tiling, Weights<scalar_t>(weights, tiling.columns), all, sums);
  });
  std::vector<torch::Tensor> result = sums.totals();
  result.insert(result.begin(), dx);
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("mixing_mlp_forward", forward_cpu);
  m.impl("mixing_mlp_backward", backward_cpu);
}

}  // namespace shoal
