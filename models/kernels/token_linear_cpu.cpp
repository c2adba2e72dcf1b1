#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/bmm.h>
#include <torch/library.h>
#include <torch/types.h>

#include <tuple>
#include <vector>

#include "models/kernels/partial_sums.h"
#include "models/kernels/tile_kernels.h"
#include "models/kernels/token_linear.h"
#include "runtime/kernels/gemm.h"

// B images  S tokens  P new tokens  C width
namespace shoal {
namespace {

using Tensors3 = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

// Of bfloat16 LibTorch's products are the fast ones. Sums over images are float32.
torch::Tensor forward_narrow(const torch::Tensor& x, const torch::Tensor& weight,
                             const torch::Tensor& bias) {
  return at::bmm(for_images(weight, x.size(0)), x).add_(bias.unsqueeze(1));
}

Tensors3 backward_narrow(const torch::Tensor& grad, const torch::Tensor& x,
                         const torch::Tensor& weight) {
  return {at::bmm(for_images(weight.t(), x.size(0)), grad),
          at::bmm(grad, x.transpose(1, 2)).sum(0, /*keepdim=*/false, torch::kFloat32),
          grad.sum(at::IntArrayRef({0, 2}), /*keepdim=*/false, torch::kFloat32)};
}

torch::Tensor forward_cpu(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias) {
  if (x.scalar_type() == torch::kBFloat16) return forward_narrow(x, weight, bias);
  const int64_t B = x.size(0), S = x.size(1), C = x.size(2), P = weight.size(0);
  torch::Tensor y = torch::empty({B, P, C}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "token_linear_forward", [&] {
    const scalar_t* x_data = x.const_data_ptr<scalar_t>();
    const scalar_t* w_data = weight.const_data_ptr<scalar_t>();
    const scalar_t* bias_data = bias.const_data_ptr<scalar_t>();
    scalar_t* y_data = y.data_ptr<scalar_t>();
    at::parallel_for(0, B, 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        scalar_t* y_b = y_data + b * P * C;
        fill_rows(bias_data, P, C, y_b);
        gemm(P, C, S, {w_data, S}, {x_data + b * S * C, C}, scalar_t(1), y_b, C);
      }
    });
  });
  return y;
}

Tensors3 backward_cpu(const torch::Tensor& grad, const torch::Tensor& x,
                      const torch::Tensor& weight) {
  if (x.scalar_type() == torch::kBFloat16) return backward_narrow(grad, x, weight);
  const int64_t B = x.size(0), S = x.size(1), C = x.size(2), P = weight.size(0);
  torch::Tensor dx = torch::empty_like(x);
  const std::vector<int64_t> bias_shape{P};
  PartialSums sums({weight.sizes(), bias_shape}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "token_linear_backward", [&] {
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

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("token_linear_forward", forward_cpu);
  m.impl("token_linear_backward", backward_cpu);
}

}  // namespace shoal
