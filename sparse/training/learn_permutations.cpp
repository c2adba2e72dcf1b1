#include "sparse/training/learn_permutations.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "sparse/training/replica_check.h"

namespace shoal {

LearnPermutations::LearnPermutations(std::vector<std::shared_ptr<Permutation>> permutations,
                                     const LearningOptions& options, const StepScale& scale)
    : options_(options), steps_(options, scale) {
  if (steps_.until > scale.total_steps) {
    throw ConfigError("sparsity.permutation.until: step " + std::to_string(steps_.until) +
                      " is behind the end of the training, step " +
                      std::to_string(scale.total_steps) + ", which would leave layers soft");
  }
  for (auto& permutation : permutations) {
    learned_.push_back({std::move(permutation)});
  }
  follow_permutations();
}

void LearnPermutations::before_norm(int64_t /*step*/, StepTensors& tensors) {
  for (Learned& learned : learned_) {
    if (!learned.permutation->is_soft()) continue;
    const Permutation& permutation = *learned.permutation;
    learned.gradient = take_gradient(permutation.soft(), permutation.name(), tensors);
  }
}

void LearnPermutations::after_update(int64_t step, StepTensors& tensors) {
  const torch::NoGradGuard no_grad;
  ++num_updates_;
  for (Learned& learned : learned_) {
    if (!learned.permutation->is_soft()) continue;
    update(learned, step);
    if (is_hard_enough(learned, step)) harden(learned, step, tensors);
  }
}

void LearnPermutations::update(Learned& learned, int64_t step) {
  const SoftFamily& family = learned.permutation->family();
  const torch::Tensor soft = learned.permutation->soft().detach();
  const auto ramp_steps = static_cast<double>(std::max<int64_t>(steps_.ramp, 1));
  const double ramp = std::min(1.0, static_cast<double>(step + 1) / ramp_steps);
  const double weight = options_.penalty * ramp / static_cast<double>(soft.size(1));
  const torch::Tensor gradient = learned.gradient + family.penalty_gradient(soft) * weight;
  learned.gradient = torch::Tensor();
  learned.adam.update(soft, gradient, options_.lr, num_updates_);
  family.project(soft);
}

bool LearnPermutations::is_hard_enough(const Learned& learned, int64_t step) const {
  if (step + 1 >= steps_.until) return true;
  const Permutation& permutation = *learned.permutation;
  if (permutation.place().parameter.is_stacked() || (step + 1) % steps_.check_every != 0)
    return false;
  return permutation.penalty().mean().item<double>() < options_.threshold;
}

void LearnPermutations::harden(Learned& learned, int64_t step, StepTensors& tensors) {
  learned.permutation->harden();
  forget(learned);
  const std::string& name = learned.permutation->name();
  require_equal_replicas(
      learned.permutation->index(), tensors.replicas(name),
      name + ": its replicas have different permutations after step " + std::to_string(step + 1));
}

void LearnPermutations::forget(Learned& learned) {
  learned.adam.end();
  learned.gradient = torch::Tensor();
}

void LearnPermutations::visit_state(StateVisitor& visitor) {
  const auto is_soft = [](const Learned& learned) { return learned.permutation->is_soft(); };
  if (std::ranges::any_of(learned_, is_soft)) visitor.integer(kUpdates, num_updates_);
  for (Learned& learned : learned_) {
    if (!learned.permutation->is_soft()) continue;
    learned.adam.visit_state(visitor, learned.permutation->place().parameter,
                             {kMomentPrefix, kSquarePrefix});
  }
}

void LearnPermutations::fit_to(const SavedNames& /*saved*/) { follow_permutations(); }

void LearnPermutations::tensors_loaded() { follow_permutations(); }

void LearnPermutations::follow_permutations() {
  for (Learned& learned : learned_) {
    if (!learned.permutation->is_soft()) {
      forget(learned);
    } else if (!learned.adam.m.defined()) {
      learned.adam.begin(learned.permutation->soft().detach());
    }
  }
}

}  // namespace shoal
