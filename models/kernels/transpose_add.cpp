#include "models/kernels/transpose_add.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "models/kernels/tile_kernels.h"
#include "runtime/device/autograd_function.h"

// B images  S tokens  C width
namespace shoal {
namespace {

torch::Tensor add_transposed(const torch::Tensor& x, const torch::Tensor& y) {
  const int64_t S = x.size(1), C = x.size(2);
  torch::Tensor sum = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "transpose_add", [&] {
    const scalar_t* x_data = x.const_data_ptr<scalar_t>();
    const scalar_t* y_data = y.const_data_ptr<scalar_t>();
    scalar_t* sum_data = sum.data_ptr<scalar_t>();
    at::parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
      for (int64_t at = first * S * C; at < last * S * C; at += S * C) {
        for_blocks(S, C, [=](int64_t s, int64_t c) {
          sum_data[at + s * C + c] = x_data[at + s * C + c] + y_data[at + c * S + s];
        });
      }
    });
  });
  return sum;
}

torch::Tensor transpose_images(const torch::Tensor& x) {
  const int64_t S = x.size(1), C = x.size(2);
  torch::Tensor y = torch::empty({x.size(0), C, S}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "transpose_add", [&] {
    const scalar_t* x_data = x.const_data_ptr<scalar_t>();
    scalar_t* y_data = y.data_ptr<scalar_t>();
    at::parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        transpose_tile(x_data + b * S * C, S, C, y_data + b * S * C);
      }
    });
  });
  return y;
}

struct TransposeAddFunction : torch::autograd::Function<TransposeAddFunction> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& x, const torch::Tensor& y) {
    return add_transposed(x, y);
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    refuse_second_derivatives();
    const torch::Tensor grad = grads[0].contiguous();
    return {grad, transpose_images(grad)};
  }
};

}  // namespace

torch::Tensor transpose_add(const torch::Tensor& x_BSC, const torch::Tensor& y_BCS) {
  TORCH_CHECK(x_BSC.dim() == 3 && y_BCS.sizes() == x_BSC.transpose(1, 2).sizes(),
              "transpose_add expects [B, S, C] and [B, C, S], got ", x_BSC.sizes(), " and ",
              y_BCS.sizes());
  if (!x_BSC.is_cpu() || x_BSC.scalar_type() == torch::kBFloat16) {
    return x_BSC.contiguous() + y_BCS.transpose(1, 2);
  }
  return TransposeAddFunction::apply(x_BSC.contiguous(), y_BCS.contiguous());
}

}  // namespace shoal
