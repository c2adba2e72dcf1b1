#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sparse/layers/soft_cells.h"
#include "sparse/training/prune_grow.h"
#include "sparse/training/soft_training.h"

namespace shoal {

/// Step rule for sparsity.rule: soft_top_k. Trains the scores of soft cells (weights of a matrix
/// that will be on or off together, such as a diagonal), and chooses the cells that stay on.
///
/// Each step sets the temperature of the next one. A layer chooses when its distance from a choice
/// is below the threshold, all layers do at `until`; a stack of experts waits for `until`, because
/// its ranks do not tell each other how near they are. PruneGrow masks the other cells then.
class ChooseCells : public SoftTraining {
 public:
  /// `cells`: one for each layer of `prune_grow`, in its order; `prune_grow` must outlive this
  /// object. Throws ConfigError if `until` is after the end of the training, `total_steps`.
  ChooseCells(const std::vector<std::shared_ptr<SoftCells>>& cells, const SoftChoice& choice,
              int64_t total_steps, PruneGrow& prune_grow);

  void after_update(int64_t step, StepTensors& tensors) override;

  /// Adam's state for the scores of weight X is saved as `sparsity.cells.m.X` and
  /// `sparsity.cells.v.X`.
  static constexpr const char* kMomentPrefix = "sparsity.cells.m.";
  static constexpr const char* kSquarePrefix = "sparsity.cells.v.";
  static constexpr const char* kUpdates = "sparsity.cells.updates";

 private:
  bool is_ready(const SoftCells& cells, int64_t step) const;

  std::vector<std::shared_ptr<SoftCells>> cells_;
  SoftChoice choice_;
  PruneGrow& prune_grow_;
};

}  // namespace shoal
