#include "sparse/kernels/sparse_linear.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <vector>

#include "runtime/device/autograd_function.h"
#include "runtime/device/operator.h"

// T tokens  m outputs  n inputs
namespace shoal {
namespace {

/// Sum over tokens as by LibTorch, but on the CPU independent of the number of threads.
torch::Tensor sum_of_tokens(const torch::Tensor& dy_Tm) {
  if (!dy_Tm.is_cpu()) return dy_Tm.sum(0);
  const int64_t T = dy_Tm.size(0), m = dy_Tm.size(1);
  torch::Tensor sum = torch::zeros({m}, dy_Tm.options());
  AT_DISPATCH_FLOATING_TYPES(dy_Tm.scalar_type(), "sparse_linear", [&] {
    const auto* dy = dy_Tm.const_data_ptr<scalar_t>();
    auto* to = sum.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, m, /*grain_size=*/64, [&](int64_t first, int64_t last) {
      for (int64_t t = 0; t < T; ++t) {
        for (int64_t j = first; j < last; ++j) to[j] += dy[t * m + j];
      }
    });
  });
  return sum;
}

struct SparseLinearFunction : torch::autograd::Function<SparseLinearFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x_Tn,
                               const torch::Tensor& weight_mn, const MaybeTensor& bias_m,
                               const SparseLayoutPtr& layout) {
    const torch::Tensor values = layout->pack(weight_mn.contiguous());
    ctx->save_for_backward({x_Tn, values});
    save_value(ctx, layout);
    ctx->saved_data["has_bias"] = bias_m.has_value();
    return layout->multiply(x_Tn, values, bias_m ? bias_m->contiguous() : torch::Tensor());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x_Tn = saved[0], &values = saved[1];
    const auto& layout = *saved_value<SparseLayoutPtr>(ctx);
    const torch::Tensor dy_Tm = grads[0].contiguous();
    torch::Tensor dx, weight, bias;
    if (ctx->needs_input_grad(0)) dx = layout.multiply_transposed(dy_Tm, values);
    if (ctx->needs_input_grad(1)) weight = layout.unpack(layout.value_gradient(x_Tn, dy_Tm));
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    if (has_bias && ctx->needs_input_grad(2)) bias = sum_of_tokens(dy_Tm);
    return {dx, weight, bias, {}};
  }
};

/// Reshapes [..., n] to [T, n].
torch::Tensor as_tokens(const torch::Tensor& x) {
  const int64_t width = x.size(-1);
  return x.contiguous().view({width == 0 ? 0 : x.numel() / width, width});
}

torch::Tensor like_tokens(const torch::Tensor& y_Tm, const torch::Tensor& x) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = y_Tm.size(1);
  return y_Tm.view(sizes);
}

void check_input(const torch::Tensor& x, const torch::Tensor& values, const torch::Tensor& bias,
                 const SparseLayout& layout) {
  const torch::Dtype dtype = x.scalar_type();
  TORCH_CHECK(
      x.device() == layout.device() && (dtype == torch::kFloat32 || dtype == torch::kFloat64),
      "sparse_linear: x is ", dtype, " on ", x.device(), ", expected float32 or float64 on ",
      layout.device(), ", where the mask is");
  TORCH_CHECK(x.dim() >= 1 && x.size(-1) == layout.columns(), "sparse_linear: x is ", x.sizes(),
              ", expected [..., ", layout.columns(), "]");
  for (const torch::Tensor& tensor : {values, bias}) {
    TORCH_CHECK(
        !tensor.defined() || (tensor.scalar_type() == dtype && tensor.device() == x.device()),
        "sparse_linear: weight and bias must be ", dtype, " on ", x.device(), " as x is");
  }
  TORCH_CHECK(!bias.defined() || bias.sizes() == at::IntArrayRef{layout.rows()},
              "sparse_linear: bias is ", bias.sizes(), ", expected [", layout.rows(), "]");
}

}  // namespace

torch::Tensor sparse_linear(const torch::Tensor& x, const torch::Tensor& weight_mn,
                            const torch::Tensor& bias_m, const SparseLayoutPtr& layout) {
  check_input(x, weight_mn, bias_m, *layout);
  TORCH_CHECK(weight_mn.sizes() == at::IntArrayRef({layout->rows(), layout->columns()}),
              "sparse_linear: weight is ", weight_mn.sizes(), ", expected [", layout->rows(), ", ",
              layout->columns(), "]");
  return like_tokens(
      SparseLinearFunction::apply(as_tokens(x), weight_mn, optional_of(bias_m), layout), x);
}

torch::Tensor sparse_linear_packed(const torch::Tensor& x, const torch::Tensor& values,
                                   const torch::Tensor& bias_m, const SparseLayout& layout) {
  check_input(x, values, bias_m, layout);
  return like_tokens(
      layout.multiply(as_tokens(x), values, bias_m.defined() ? bias_m.contiguous() : bias_m), x);
}

}  // namespace shoal
