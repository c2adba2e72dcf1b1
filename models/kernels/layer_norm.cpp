#include "models/kernels/layer_norm.h"

#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "models/kernels/partial_sums.h"
#include "models/kernels/tile_kernels.h"
#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"
#include "runtime/device/real_types.h"
#include "runtime/kernels/bfloat16_rows.h"

// B images  S tokens  C width  N rows
namespace shoal {
namespace {

using Tensors3 = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

/// Tiles of x: whole images if the result is transposed, else runs of rows.
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

/// Kind, eps and layout of a norm.
struct NormForm {
  NormKind kind;
  double eps;
  bool transposed;
  bool has_bias;

  bool is_centred() const { return kind == NormKind::kLayer; }
};

/// `bias` is undefined for a norm without bias.
Tensors3 norm_forward_cpu(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, const NormForm& form) {
  const bool transposed = form.transposed;
  const Tiling tiling(x, transposed);
  const int64_t columns = tiling.columns;
  const torch::Tensor y = transposed ? torch::empty({x.size(0), x.size(2), x.size(1)}, x.options())
                                     : torch::empty_like(x);
  // For bfloat16 inputs, parameters and statistics are float32.
  const torch::Tensor mean_N = torch::empty({tiling.rows}, weight.options());
  const torch::Tensor rstd_N = torch::empty({tiling.rows}, weight.options());
  for_real_type(x, "layer_norm", [&]<class Value, class Sum>(Value, Sum) {
    const NormParameters<Sum> norm{const_data<Sum>(weight),
                                   form.has_bias ? const_data<Sum>(bias) : nullptr, columns,
                                   static_cast<Sum>(form.eps), form.is_centred()};
    const auto* x_data = const_data<Value>(x);
    auto* y_data = data<Value>(y);
    const RowStatistics<Sum> statistics{data<Sum>(mean_N), data<Sum>(rstd_N)};
    at::parallel_for(0, tiling.num_tiles, 1, [&](int64_t first, int64_t last) {
      std::vector<Sum> normed(static_cast<size_t>(transposed ? tiling.rows_per_tile * columns : 0));
      std::vector<Sum> wide_x, wide_y;
      for (int64_t i = first; i < last; ++i) {
        const int64_t row = i * tiling.rows_per_tile, rows = tiling.rows_of(i);
        const int64_t at = row * columns, size = rows * columns;
        Sum* out = start_wide(y_data + at, size, wide_y);
        normalise_rows(norm, wide(x_data + at, size, wide_x), rows,
                       transposed ? normed.data() : out,
                       {statistics.mean_R + row, statistics.rstd_R + row});
        if (transposed) transpose_tile(normed.data(), rows, columns, out);
        finish_wide(out, size, y_data + at);
      }
    });
  });
  return {y, mean_N, rstd_N};
}

/// Gradients of a norm and its residual, which may be undefined.
struct BranchGradient {
  torch::Tensor normed, residual;
};

Tensors3 norm_backward_cpu(const BranchGradient& grad, const variable_list& saved,
                           const NormForm& form) {
  const bool transposed = form.transposed;
  const torch::Tensor &x = saved[0], &weight = saved[1];
  const Tiling tiling(x, transposed);
  const int64_t columns = tiling.columns;
  const torch::Tensor dx = torch::empty_like(x);
  PartialSums sums({weight.sizes(), weight.sizes()}, weight.options());
  for_real_type(x, "layer_norm", [&]<class Value, class Sum>(Value, Sum) {
    const NormParameters<Sum> norm{const_data<Sum>(weight), nullptr, columns,
                                   static_cast<Sum>(form.eps), form.is_centred()};
    const auto *x_data = const_data<Value>(x), *grad_data = const_data<Value>(grad.normed);
    const auto* residual = grad.residual.defined() ? const_data<Value>(grad.residual) : nullptr;
    const auto *mean = const_data<Sum>(saved[2]), *rstd = const_data<Sum>(saved[3]);
    auto* dx_data = data<Value>(dx);
    at::parallel_for(0, tiling.num_tiles, 1, [&](int64_t first, int64_t last) {
      std::vector<Sum> turned(static_cast<size_t>(transposed ? tiling.rows_per_tile * columns : 0));
      std::vector<Sum> wide_x, wide_grad, wide_residual, wide_dx;
      for (int64_t i = first; i < last; ++i) {
        const int64_t row = i * tiling.rows_per_tile, rows = tiling.rows_of(i);
        const int64_t at = row * columns, size = rows * columns;
        const Sum* y_grad = wide(grad_data + at, size, wide_grad);
        if (transposed) {
          transpose_tile(y_grad, columns, rows, turned.data());
          y_grad = turned.data();
        }
        Sum* out = start_wide(dx_data + at, size, wide_dx);
        normalise_rows_backward(norm,
                                {wide(x_data + at, size, wide_x), mean + row, rstd + row, y_grad,
                                 residual ? wide(residual + at, size, wide_residual) : nullptr, out,
                                 sums.own<Sum>(0), sums.own<Sum>(1)},
                                rows);
        finish_wide(out, size, dx_data + at);
      }
    });
  });
  const std::vector<torch::Tensor> totals = sums.totals();
  return {dx, totals[0], totals[1]};
}

Tensors3 norm_forward_gpu(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, const NormForm& form) {
  static const Operator<Tensors3(const torch::Tensor&, const torch::Tensor&,
                                 const std::optional<torch::Tensor>&, bool, double)>
      op("shoal::layer_norm_forward");
  const auto [y, mean, rstd] = op(x, weight, optional_of(bias), form.is_centred(), form.eps);
  return {form.transposed ? y.transpose(1, 2).contiguous() : y, mean, rstd};
}

Tensors3 norm_backward_gpu(const BranchGradient& grad, const variable_list& saved,
                           const NormForm& form) {
  static const Operator<Tensors3(const torch::Tensor&, const std::optional<torch::Tensor>&,
                                 at::TensorList, bool)>
      op("shoal::layer_norm_backward");
  const torch::Tensor y_grad =
      form.transposed ? grad.normed.transpose(1, 2).contiguous() : grad.normed;
  return op(y_grad, optional_of(grad.residual), saved, form.is_centred());
}

Tensors3 norm_forward(const torch::Tensor& x, const torch::Tensor& weight,
                      const torch::Tensor& bias, const NormForm& form) {
  return (x.is_cpu() ? norm_forward_cpu : norm_forward_gpu)(x, weight, bias, form);
}

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static variable_list forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias, const NormForm& form) {
    const auto [y, mean, rstd] = norm_forward(x, weight, bias.value_or(torch::Tensor()), form);
    ctx->save_for_backward({x, weight, mean, rstd});
    save_value(ctx, form);
    ctx->set_materialize_grads(false);  // that of an unused residual stays undefined
    return {y, x};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    if (!grads[0].defined()) return {grads[1], {}, {}, {}};
    const BranchGradient grad{grads[0].contiguous(),
                              grads[1].defined() ? grads[1].contiguous() : torch::Tensor()};
    const auto form = saved_value<NormForm>(ctx);
    const auto [x, weight, bias] = (grad.normed.is_cpu() ? norm_backward_cpu : norm_backward_gpu)(
        grad, ctx->get_saved_variables(), form);
    return {x, weight, form.has_bias ? bias : torch::Tensor(), {}};
  }
};

/// `bias` is undefined for a norm without bias.
NormedBranch start_branch(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, const NormForm& form) {
  TORCH_CHECK(!form.transposed || x.dim() == 3, "layer_norm_transposed expects [B, S, C], got ",
              x.sizes());
  TORCH_CHECK(x.dim() >= 1 && x.is_contiguous(), "layer_norm: x must be contiguous, got ",
              x.sizes(), " with strides ", x.strides());
  const int64_t width = x.size(-1);
  const bool is_narrow = x.scalar_type() == torch::kBFloat16;
  const torch::Dtype dtype = is_narrow ? torch::kFloat32 : x.scalar_type();
  const auto fits = [&](const char* name, const torch::Tensor& parameter) {
    TORCH_CHECK(parameter.sizes() == at::IntArrayRef{width}, "layer_norm: x is ", x.sizes(), ", ",
                name, " must be [", width, "], is ", parameter.sizes());
    TORCH_CHECK(parameter.scalar_type() == dtype, "layer_norm: x is ", x.scalar_type(), ", ", name,
                " must be ", dtype, ", is ", parameter.scalar_type());
  };
  fits("weight", weight);
  if (form.has_bias) fits("bias", bias);
  if (!at::GradMode::is_enabled()) return {std::get<0>(norm_forward(x, weight, bias, form)), x};
  const variable_list outputs =
      LayerNormFunction::apply(x, weight, std::optional<torch::Tensor>(bias), form);
  return {outputs[0], outputs[1]};
}

}  // namespace

LayerNormImpl::LayerNormImpl(int64_t width, const torch::TensorOptions& options,
                             const NormOptions& norm)
    : norm_(norm) {
  weight = add_parameter("weight", {width}, options, Init::ones());
  if (norm.bias && norm.kind == NormKind::kLayer) {
    bias = add_parameter("bias", {width}, options, Init::zeros());
  }
}

NormedBranch LayerNormImpl::branch(const torch::Tensor& x) const {
  return start_branch(x, weight, bias, {norm_.kind, norm_.eps, false, bias.defined()});
}

NormedBranch LayerNormImpl::branch_transposed(const torch::Tensor& x_BSC) const {
  return start_branch(x_BSC, weight, bias, {norm_.kind, norm_.eps, true, bias.defined()});
}

// `saved`: x, weight, mean, rstd. backward: gradients of x with the residual's, weight and bias.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "layer_norm_forward(Tensor x, Tensor weight, Tensor? bias, bool centred, float eps) -> "
      "(Tensor, Tensor, Tensor)");
  m.def(
      "layer_norm_backward(Tensor grad, Tensor? residual, Tensor[] saved, bool centred) -> "
      "(Tensor, Tensor, Tensor)");
}

}  // namespace shoal
