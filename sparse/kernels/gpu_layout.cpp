#include "sparse/kernels/gpu_layout.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/searchsorted.h>

// T tokens  m outputs  n inputs
namespace shoal {

torch::Tensor GpuLayout::pack(const torch::Tensor& weight_mn) const {
  return weight_mn.view({-1}).index_select(0, place_);
}

torch::Tensor GpuLayout::unpack(const torch::Tensor& values) const {
  return torch::zeros({rows() * columns()}, values.options())
      .index_copy_(0, place_, values)
      .view({rows(), columns()});
}

torch::Tensor GpuLayout::multiply(const torch::Tensor& x_Tn, const torch::Tensor& values,
                                  const torch::Tensor& bias_m) const {
  torch::Tensor y =
      has_work(x_Tn) ? product(x_Tn, values) : torch::zeros({x_Tn.size(0), rows()}, x_Tn.options());
  return bias_m.defined() ? y.add_(bias_m) : y;
}

torch::Tensor GpuLayout::multiply_transposed(const torch::Tensor& dy_Tm,
                                             const torch::Tensor& values) const {
  return has_work(dy_Tm) ? transposed_product(dy_Tm, values)
                         : torch::zeros({dy_Tm.size(0), columns()}, dy_Tm.options());
}

torch::Tensor GpuLayout::value_gradient(const torch::Tensor& x_Tn,
                                        const torch::Tensor& dy_Tm) const {
  return has_work(x_Tn) ? dots(x_Tn, dy_Tm) : torch::zeros({num_weights()}, x_Tn.options());
}

GpuPlaces::GpuPlaces(const SparseOrder& order, const torch::Device& device) {
  const auto as_index = [&](const torch::Tensor& places) {
    return places.to(device, torch::kInt32).contiguous();
  };
  if (order.inputs.defined()) input_at = as_index(order.inputs);
  if (order.outputs.defined()) output_at = as_index(order.outputs.argsort());
}

torch::Tensor in_order(const torch::Tensor& x, const torch::Tensor& at) {
  return at.defined() ? x.index_select(-1, at) : x;
}

torch::Tensor starts_of(const torch::Tensor& ascending, int64_t count) {
  return at::searchsorted(ascending, at::arange(count + 1, ascending.options()),
                          /*out_int32=*/true);
}

}  // namespace shoal
