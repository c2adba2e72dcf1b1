#include "runtime/gradients.h"

#include <ATen/ops/_foreach_div.h>
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(shoal, m) { m.def("square_sums(Tensor[] tensors) -> Tensor"); }

namespace shoal {
namespace {

std::vector<torch::Tensor> gradients_of(const std::vector<Parameter>& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const Parameter& parameter : parameters) {
    gradients.push_back(parameter.tensor.grad());
    TORCH_CHECK(gradients.back().defined(), parameter.name, " has no gradient");
  }
  return gradients;
}

}  // namespace

torch::Tensor square_sums(const std::vector<Parameter>& parameters) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("shoal::square_sums", "")
                             .typed<torch::Tensor(at::TensorList)>();
  torch::NoGradGuard no_grad;
  if (parameters.empty()) return torch::zeros({0}, at::kDouble);
  std::vector<torch::Tensor> gradients = gradients_of(parameters);
  for (torch::Tensor& gradient : gradients) gradient = gradient.contiguous();
  return op.call(gradients);
}

void clip_gradients(const std::vector<Parameter>& parameters, double norm, double clip_norm) {
  TORCH_CHECK(clip_norm > 0.0, "clip_gradients: clip_norm must be positive, got ", clip_norm);
  if (parameters.empty() || norm <= clip_norm) return;
  torch::NoGradGuard no_grad;
  at::_foreach_div_(gradients_of(parameters), norm / clip_norm);
}

std::optional<std::string> first_non_finite(const std::vector<Parameter>& parameters) {
  torch::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters) {
    const torch::Tensor gradient = parameter.tensor.grad();
    if (!gradient.defined() || gradient.numel() == 0) continue;
    const int64_t matrices = parameter.is_stacked() ? gradient.size(0) : 1;
    const torch::Tensor bad = gradient.isfinite().logical_not().view({matrices, -1}).any(1);
    for (int64_t i = 0; i < matrices; ++i) {
      if (!bad[i].item<bool>()) continue;
      if (!parameter.is_stacked()) return parameter.name;
      return name_of_unit(parameter.name, parameter.unit_ids[static_cast<size_t>(i)]);
    }
  }
  return std::nullopt;
}

}  // namespace shoal
