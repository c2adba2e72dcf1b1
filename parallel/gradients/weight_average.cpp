#include "parallel/gradients/weight_average.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>

#include <algorithm>

namespace shoal {

WeightAverage::WeightAverage(const Options& options, const std::vector<Parameter>& parameters)
    : options_(options) {
  for (const Parameter& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    parameters_.push_back(parameter);
    averages_.push_back(torch::zeros_like(parameter.tensor.detach()));
  }
}

const torch::Tensor& WeightAverage::average_of(const std::string& parameter) const {
  const auto found = std::ranges::find(parameters_, parameter, &Parameter::name);
  TORCH_CHECK(found != parameters_.end(), parameter, " has no average");
  return averages_[static_cast<size_t>(found - parameters_.begin())];
}

void WeightAverage::after_update(int64_t step, StepTensors& /*tensors*/) {
  if ((step + 1) % options_.every != 0) return;
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> weights;
  for (const Parameter& parameter : parameters_) weights.push_back(parameter.tensor.detach());
  if (num_updates_ == 0) {
    at::_foreach_copy_(averages_, weights);
  } else {
    const auto t = static_cast<double>(num_updates_);
    const double warm = options_.warmup ? (1 + t) / (10 + t) : 1.0;
    at::_foreach_lerp_(averages_, weights, 1.0 - std::min(options_.decay, warm));
  }
  ++num_updates_;
}

void WeightAverage::visit_state(StateVisitor& visitor) {
  visitor.integer(kUpdates, num_updates_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    visitor.tensor(state_like(kPrefix, parameters_[i], averages_[i]));
  }
}

std::shared_ptr<void> WeightAverage::lend_weights() {
  if (num_updates_ == 0) return nullptr;
  std::vector<torch::Tensor> weights;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    weights.push_back(parameters_[i].tensor.detach());
    parameters_[i].tensor.set_data(averages_[i]);
  }
  return {this, [weights](WeightAverage* average) {
            for (size_t i = 0; i < weights.size(); ++i) {
              average->parameters_[i].tensor.set_data(weights[i]);
            }
          }};
}

}  // namespace shoal
