#include "sparse/training/learn_permutations.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"

namespace shoal {

LearnPermutations::LearnPermutations(const std::vector<std::shared_ptr<Permutation>>& permutations,
                                     const LearningOptions& options, const StepScale& scale)
    : SoftTraining(permutations, {{kMomentPrefix, kSquarePrefix}, kUpdates}),
      permutations_(permutations),
      options_(options),
      steps_(options, scale) {
  if (steps_.until > scale.total_steps) {
    throw ConfigError("sparsity.permutation.until: step " + std::to_string(steps_.until) +
                      " is behind the end of the training, step " +
                      std::to_string(scale.total_steps) + ", which would leave layers soft");
  }
}

void LearnPermutations::after_update(int64_t step, StepTensors& tensors) {
  const torch::NoGradGuard no_grad;
  ++num_updates_;
  for (size_t l = 0; l < permutations_.size(); ++l) {
    Permutation& permutation = *permutations_[l];
    if (!permutation.is_soft()) continue;
    update(permutation, soft_[l], step);
    if (is_hard_enough(permutation, step)) harden(permutation, step, tensors);
  }
  follow_forms();
}

void LearnPermutations::update(const Permutation& permutation, Soft& soft, int64_t step) {
  const torch::Tensor value = permutation.soft().detach();
  const auto ramp_steps = static_cast<double>(std::max<int64_t>(steps_.ramp, 1));
  const double ramp = std::min(1.0, static_cast<double>(step + 1) / ramp_steps);
  const double weight = options_.penalty * ramp / static_cast<double>(value.size(1));
  const torch::Tensor gradient =
      soft.gradient + permutation.family().penalty_gradient(value) * weight;
  soft.gradient = torch::Tensor();
  soft.adam.update(value, gradient, options_.lr, num_updates_);
  permutation.family().project(value);
}

bool LearnPermutations::is_hard_enough(const Permutation& permutation, int64_t step) const {
  if (step + 1 >= steps_.until) return true;
  if (permutation.weight().is_stacked() || (step + 1) % steps_.check_every != 0) return false;
  return permutation.penalty().mean().item<double>() < options_.threshold;
}

void LearnPermutations::harden(Permutation& permutation, int64_t step, StepTensors& tensors) {
  permutation.harden();
  const std::string& name = permutation.name();
  require_equal_replicas(
      permutation.index(), tensors.replicas(name),
      name + ": its replicas have different permutations after step " + std::to_string(step + 1));
}

}  // namespace shoal
