#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>
#include <torch/types.h>

#include "models/kernels/tile_kernels.h"

// B images  S tokens  C width
namespace shoal {
namespace {

torch::Tensor add_cpu(const torch::Tensor& x, const torch::Tensor& y) {
  const int64_t S = x.size(1), C = x.size(2);
  torch::Tensor sum = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "transpose_add", [&] {
    const scalar_t* x_data = x.const_data_ptr<scalar_t>();
    const scalar_t* y_data = y.const_data_ptr<scalar_t>();
    scalar_t* sum_data = sum.data_ptr<scalar_t>();
    at::parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const int64_t at = b * S * C;
        add_transposed_tile(x_data + at, y_data + at, S, C, sum_data + at);
      }
    });
  });
  return sum;
}

torch::Tensor transpose_cpu(const torch::Tensor& x) {
  const int64_t S = x.size(1), C = x.size(2);
  torch::Tensor y = torch::empty({x.size(0), C, S}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "transpose_images", [&] {
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

}  // namespace

TORCH_LIBRARY_IMPL(shoal, CPU, m) {
  m.impl("transpose_add", add_cpu);
  m.impl("transpose_images", transpose_cpu);
}

}  // namespace shoal
