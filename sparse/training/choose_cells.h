#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "sparse/layers/soft_cells.h"
#include "sparse/training/prune_grow.h"
#include "sparse/training/soft_adam.h"

namespace shoal {

/// Trains the scores of soft cells, and makes their choice.
///
/// Each step the scores' gradients, summed over the replicas of the weight, go into Adam, and the
/// temperature of the next step is set. A layer's choice is made when its distance from one is
/// below the threshold, that of all layers at `until`; a stack of experts waits for `until`,
/// because its ranks do not tell each other how near they are. From then on PruneGrow keeps the
/// weights to the chosen cells. The gradients of scores are neither measured nor clipped with those
/// of the weights.
class ChooseCells : public StepRule {
 public:
  /// `cells`: one a layer of `prune_grow`, which outlives this, in its order. Throws ConfigError if
  /// `until` is behind the end of the training, `total_steps`.
  ChooseCells(std::vector<std::shared_ptr<SoftCells>> cells, const SoftChoice& choice,
              int64_t total_steps, PruneGrow& prune_grow);

  void before_norm(int64_t step, StepTensors& tensors) override;
  void after_update(int64_t step, StepTensors& tensors) override;
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;

  /// Adam's state of the scores of weight X: `sparsity.cells.m.X`, `sparsity.cells.v.X`.
  static constexpr const char* kMomentPrefix = "sparsity.cells.m.";
  static constexpr const char* kSquarePrefix = "sparsity.cells.v.";
  static constexpr const char* kUpdates = "sparsity.cells.updates";

 private:
  /// Cells that may still be soft; without Adam's state when they are chosen.
  struct Soft {
    std::shared_ptr<SoftCells> cells;
    SoftAdam adam = {};
    torch::Tensor gradient = {};  ///< of this step, summed over replicas
  };

  /// Gives soft cells Adam's state if they have none, takes it from chosen ones.
  void follow_cells();
  bool is_ready(const SoftCells& cells, int64_t step) const;

  std::vector<Soft> soft_;
  SoftChoice choice_;
  PruneGrow& prune_grow_;
  int64_t num_updates_ = 0;
};

}  // namespace shoal
