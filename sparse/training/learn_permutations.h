#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "runtime/base/duration.h"
#include "sparse/permutations/permutation.h"
#include "sparse/permutations/permutation_method.h"
#include "sparse/training/soft_adam.h"

namespace shoal {

/// Trains the soft permutations of sparse layers, and makes them hard.
///
/// Each step their gradients, summed over the replicas of the weight, and that of the penalty go
/// into Adam, whose state is here and not the optimizer's: it goes with the parameter when a layer
/// becomes hard. Then parameters are projected. A layer becomes hard when its penalty is below the
/// threshold, all layers at `until`. A stack of experts waits for `until`, because its ranks do not
/// tell each other how near they are. Gradients of permutations are neither measured nor clipped
/// with the weights'.
class LearnPermutations : public StepRule {
 public:
  /// Throws ConfigError for durations that `scale` cannot count, and if `until` is behind the end.
  LearnPermutations(std::vector<std::shared_ptr<Permutation>> permutations,
                    const LearningOptions& options, const StepScale& scale);

  void before_norm(int64_t step, StepTensors& tensors) override;
  void after_update(int64_t step, StepTensors& tensors) override;
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;

  /// The parameter, its gradient and Adam's state.
  static constexpr int64_t kCopiesOfSoft = 4;
  /// Adam's state of the permutation of weight X: `sparsity.soft.m.X`, `sparsity.soft.v.X`.
  static constexpr const char* kMomentPrefix = "sparsity.soft.m.";
  static constexpr const char* kSquarePrefix = "sparsity.soft.v.";
  static constexpr const char* kUpdates = "sparsity.soft.updates";

 private:
  /// A permutation that may still be soft; without Adam's state when hard.
  struct Learned {
    std::shared_ptr<Permutation> permutation;
    SoftAdam adam = {};
    torch::Tensor gradient = {};  ///< of this step, summed over replicas
  };

  static void forget(Learned& learned);
  /// Gives soft permutations Adam's state if they have none, takes it from hard ones.
  void follow_permutations();
  void update(Learned& learned, int64_t step);
  bool is_hard_enough(const Learned& learned, int64_t step) const;
  static void harden(Learned& learned, int64_t step, StepTensors& tensors);

  std::vector<Learned> learned_;
  LearningOptions options_;
  LearningSteps steps_;
  int64_t num_updates_ = 0;
};

}  // namespace shoal
