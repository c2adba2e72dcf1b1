#include "runtime/optim/gradients.h"

#include <torch/library.h>

#include "runtime/device/operator.h"

TORCH_LIBRARY_FRAGMENT(shoal, m) { m.def("square_sums(Tensor[] tensors) -> Tensor"); }

namespace shoal {

torch::Tensor square_sums(const std::vector<Parameter>& parameters) {
  static const Operator<torch::Tensor(at::TensorList)> op("shoal::square_sums");
  torch::NoGradGuard no_grad;
  if (parameters.empty()) return torch::zeros({0}, at::kDouble);
  std::vector<torch::Tensor> gradients;
  for (const Parameter& parameter : parameters) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    TORCH_CHECK(gradient.defined(), parameter.name, " has no gradient");
    gradients.push_back(gradient.contiguous());
  }
  return op(gradients);
}

std::optional<std::string> find_nonfinite(const Parameter& parameter) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& gradient = parameter.tensor.grad();
  if (!gradient.defined() || gradient.numel() == 0) return std::nullopt;
  const torch::Tensor bad = gradient.isfinite().logical_not();
  if (!parameter.is_stacked()) {
    return bad.any().item<bool>() ? std::optional(parameter.name) : std::nullopt;
  }
  const torch::Tensor bad_units = bad.reshape({gradient.size(0), -1}).any(1);
  for (int64_t i = 0; i < bad_units.size(0); ++i) {
    if (!bad_units[i].item<bool>()) continue;
    return name_of_unit(parameter.name, parameter.unit_ids[static_cast<size_t>(i)]);
  }
  return std::nullopt;
}

}  // namespace shoal
