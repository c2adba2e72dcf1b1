#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/duration.h"
#include "sparse/permutations/permutation.h"
#include "sparse/permutations/permutation_method.h"
#include "sparse/training/soft_training.h"

namespace shoal {

/// Step rule that trains soft permutations (relaxed matrices) of sparse layers until they become
/// hard (fixed). Source: PA-DST (sparse training with learned permutations). The base class sums
/// gradients over ranks. A layer becomes hard once its penalty, its distance from a permutation, is
/// below the threshold, at the latest at `until`. Stacks of experts wait for `until`, as ranks do
/// not exchange their experts' penalties.
class LearnPermutations : public SoftTraining {
 public:
  /// Throws ConfigError for durations that `scale` cannot convert, or an `until` after the end.
  LearnPermutations(const std::vector<std::shared_ptr<Permutation>>& permutations,
                    const LearningOptions& options, const StepScale& scale);

  /// Adds the gradient of the penalty, updates by Adam, restores constraints such as row sums of 1,
  /// and makes layers hard. `tensors` is only used to check that replicas are equal. Collective.
  void after_update(int64_t step, StepTensors& tensors) override;

  /// Tensors kept per soft permutation: the parameter, its gradient and both of Adam's states.
  static constexpr int64_t kCopiesOfSoft = 4;
  /// Prefixes of the names of Adam's saved states, before the weight's name.
  static constexpr const char* kMomentPrefix = "sparsity.soft.m.";
  static constexpr const char* kSquarePrefix = "sparsity.soft.v.";
  static constexpr const char* kUpdates = "sparsity.soft.updates";  ///< saved number of updates

 private:
  void update(const Permutation& permutation, Soft& soft, int64_t step);  ///< soft: gradient, Adam
  bool is_hard_enough(const Permutation& permutation, int64_t step) const;
  static void harden(Permutation& permutation, int64_t step, StepTensors& tensors);

  std::vector<std::shared_ptr<Permutation>> permutations_;
  LearningOptions options_;
  LearningSteps steps_;
};

}  // namespace shoal
