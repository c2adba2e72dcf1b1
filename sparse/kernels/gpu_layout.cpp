#include "sparse/kernels/gpu_layout.h"

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

torch::Tensor GpuLayout::product(const torch::Tensor& x, const torch::Tensor& values,
                                 const torch::Tensor& bias, bool is_transposed) const {
  const int64_t width = is_transposed ? columns() : rows();
  torch::Tensor y = has_work(x) ? plain_product(x, values, is_transposed)
                                : torch::zeros({x.size(0), width}, x.options());
  return bias.defined() ? y.add_(bias) : y;
}

torch::Tensor GpuLayout::value_gradient(const torch::Tensor& x_Tn,
                                        const torch::Tensor& dy_Tm) const {
  return has_work(x_Tn) ? dots(x_Tn, dy_Tm) : torch::zeros({num_weights()}, x_Tn.options());
}

}  // namespace shoal
