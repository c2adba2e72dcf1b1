#include "models/kernels/token_linear.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/bmm.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "models/kernels/partial_sums.h"
#include "models/kernels/tile_kernels.h"
#include "runtime/device/autograd_function.h"
#include "runtime/products/gemm.h"

// B images  S tokens  P new tokens  C width
namespace shoal {
namespace {

using Tensors3 = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

torch::Tensor forward_tiles(const torch::Tensor& x, const torch::Tensor& weight,
                            const torch::Tensor& bias) {
  const int64_t B = x.size(0), S = x.size(1), C = x.size(2), P = weight.size(0);
  torch::Tensor y = torch::empty({B, P, C}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "token_linear", [&] {
    const scalar_t* x_data = x.const_data_ptr<scalar_t>();
    const scalar_t* w_data = weight.const_data_ptr<scalar_t>();
    const scalar_t* bias_data = bias.const_data_ptr<scalar_t>();
    scalar_t* y_data = y.data_ptr<scalar_t>();
    at::parallel_for(0, B, 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        scalar_t* y_b = y_data + b * P * C;
        for (int64_t p = 0; p < P; ++p) std::fill_n(y_b + p * C, C, bias_data[p]);
        gemm(P, C, S, {w_data, S}, {x_data + b * S * C, C}, scalar_t(1), y_b, C);
      }
    });
  });
  return y;
}

Tensors3 backward_tiles(const torch::Tensor& grad, const torch::Tensor& x,
                        const torch::Tensor& weight) {
  const int64_t B = x.size(0), S = x.size(1), C = x.size(2), P = weight.size(0);
  torch::Tensor dx = torch::empty_like(x);
  PartialSums sums({weight.sizes(), at::IntArrayRef(P)}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "token_linear", [&] {
    const scalar_t* grad_data = grad.const_data_ptr<scalar_t>();
    const scalar_t* x_data = x.const_data_ptr<scalar_t>();
    const scalar_t* w_data = weight.const_data_ptr<scalar_t>();
    scalar_t* dx_data = dx.data_ptr<scalar_t>();
    at::parallel_for(0, B, 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const scalar_t* grad_b = grad_data + b * P * C;
        gemm(S, C, P, {w_data, S, true}, {grad_b, C}, scalar_t(0), dx_data + b * S * C, C);
        gemm(P, S, C, {grad_b, C}, {x_data + b * S * C, C, true}, scalar_t(1),
             sums.own<scalar_t>(0), S);
        add_row_sums(grad_b, P, C, sums.own<scalar_t>(1));
      }
    });
  });
  const std::vector<torch::Tensor> totals = sums.totals();
  return {dx, totals[0], totals[1]};
}

/// Expands one matrix to all images without a copy: [P, S] -> [B, P, S].
torch::Tensor for_images(const torch::Tensor& matrix, int64_t num_images) {
  return matrix.unsqueeze(0).expand({num_images, -1, -1});
}

// LibTorch products, which are the faster ones on GPUs and for bfloat16.

torch::Tensor forward_products(const torch::Tensor& x, const torch::Tensor& weight,
                               const torch::Tensor& bias) {
  return at::bmm(for_images(weight, x.size(0)), x).add_(bias.unsqueeze(1));
}

// One product per image, then a sum over images: this moves less data than one product of all
// images, which transposes both factors. On the CPU the sums are float32.
Tensors3 backward_products(const torch::Tensor& grad, const torch::Tensor& x,
                           const torch::Tensor& weight) {
  const torch::Dtype sum = x.is_cpu() ? torch::kFloat32 : x.scalar_type();
  return {at::bmm(for_images(weight.t(), x.size(0)), grad),
          at::bmm(grad, x.transpose(1, 2)).sum(0, /*keepdim=*/false, sum),
          grad.sum(at::IntArrayRef({0, 2}), /*keepdim=*/false, sum)};
}

bool has_tiles(const torch::Tensor& x) { return x.is_cpu() && x.scalar_type() != torch::kBFloat16; }

struct TokenLinearFunction : torch::autograd::Function<TokenLinearFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias) {
    ctx->save_for_backward({x, weight});
    return (has_tiles(x) ? forward_tiles : forward_products)(x, weight.to(x.scalar_type()),
                                                             bias.to(x.scalar_type()));
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1];
    const auto [x_grad, weight_grad, bias_grad] =
        (has_tiles(x) ? backward_tiles : backward_products)(grads[0].contiguous(), x,
                                                            weight.to(x.scalar_type()));
    const torch::Dtype dtype = weight.scalar_type();
    return {x_grad, weight_grad.to(dtype), bias_grad.to(dtype)};
  }
};

}  // namespace

torch::Tensor token_linear(const torch::Tensor& x_BSC, const torch::Tensor& weight,
                           const torch::Tensor& bias) {
  TORCH_CHECK(x_BSC.dim() == 3 && x_BSC.is_contiguous() && weight.dim() == 2 &&
                  weight.size(1) == x_BSC.size(1),
              "token_linear: weight ", weight.sizes(), " does not fit contiguous x [B, S, C] ",
              x_BSC.sizes());
  TORCH_CHECK(bias.sizes() == at::IntArrayRef{weight.size(0)}, "token_linear: bias ", bias.sizes(),
              " does not fit weight ", weight.sizes());
  return TokenLinearFunction::apply(x_BSC, weight, bias);
}

torch::Tensor token_linear(const torch::Tensor& x_BSC, const LinearImpl& layer) {
  if (const auto dense = layer.dense()) return token_linear(x_BSC, dense->weight, dense->bias);
  return layer.forward(x_BSC.transpose(1, 2).contiguous()).transpose(1, 2).contiguous();
}

}  // namespace shoal
