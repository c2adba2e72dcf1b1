#include "runtime/optim/gradients.h"

#include <torch/library.h>

#include "runtime/device/operator.h"

TORCH_LIBRARY_FRAGMENT(shoal, m) { m.def("square_sums(Tensor[] tensors) -> Tensor"); }

namespace shoal {

torch::Tensor square_sums(const std::vector<Parameter>& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const Parameter& parameter : parameters) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    TORCH_CHECK(gradient.defined(), parameter.name, " has no gradient");
    gradients.push_back(gradient);
  }
  return square_sums_of(gradients);
}

torch::Tensor square_sums_of(const std::vector<torch::Tensor>& tensors) {
  static const Operator<torch::Tensor(at::TensorList)> op("shoal::square_sums");
  torch::NoGradGuard no_grad;
  if (tensors.empty()) return torch::zeros({0}, at::kDouble);
  std::vector<torch::Tensor> contiguous;
  for (const torch::Tensor& tensor : tensors) contiguous.push_back(tensor.contiguous());
  return op(contiguous);
}

std::optional<std::string> find_nonfinite(const Parameter& parameter) {
  torch::NoGradGuard no_grad;
  const torch::Tensor& gradient = parameter.tensor.grad();
  if (!gradient.defined() || gradient.numel() == 0) return std::nullopt;
  const int64_t rows = parameter.is_stacked() ? gradient.size(0) : 1;
  const torch::Tensor bad_rows = gradient.isfinite().logical_not().reshape({rows, -1}).any(1);
  for (int64_t row = 0; row < rows; ++row) {
    if (bad_rows[row].item<bool>()) return name_of_row(parameter, row);
  }
  return std::nullopt;
}

}  // namespace shoal
