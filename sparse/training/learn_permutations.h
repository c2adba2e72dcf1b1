#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/duration.h"
#include "sparse/permutations/permutation.h"
#include "sparse/permutations/permutation_method.h"
#include "sparse/training/soft_training.h"

namespace shoal {

/// Trains the soft permutations of sparse layers, and makes them hard.
///
/// Each step the gradient of the penalty is added to theirs. After Adam's update parameters are
/// projected. A layer becomes hard when its penalty is below the threshold, all layers at `until`.
/// A stack of experts waits for `until`, because its ranks do not tell each other how near they
/// are.
class LearnPermutations : public SoftTraining {
 public:
  /// Throws ConfigError for durations that `scale` cannot convert, and if `until` is after the end
  /// of the training.
  LearnPermutations(const std::vector<std::shared_ptr<Permutation>>& permutations,
                    const LearningOptions& options, const StepScale& scale);

  void after_update(int64_t step, StepTensors& tensors) override;

  /// The parameter, its gradient and both of Adam's states.
  static constexpr int64_t kCopiesOfSoft = 4;
  /// Adam's state for the permutation of weight X is saved as `sparsity.soft.m.X` and
  /// `sparsity.soft.v.X`.
  static constexpr const char* kMomentPrefix = "sparsity.soft.m.";
  static constexpr const char* kSquarePrefix = "sparsity.soft.v.";
  static constexpr const char* kUpdates = "sparsity.soft.updates";

 private:
  void update(const Permutation& permutation, Soft& soft, int64_t step);
  bool is_hard_enough(const Permutation& permutation, int64_t step) const;
  static void harden(Permutation& permutation, int64_t step, StepTensors& tensors);

  std::vector<std::shared_ptr<Permutation>> permutations_;
  LearningOptions options_;
  LearningSteps steps_;
};

}  // namespace shoal
