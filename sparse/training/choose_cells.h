#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sparse/layers/soft_cells.h"
#include "sparse/training/prune_grow.h"
#include "sparse/training/soft_training.h"

namespace shoal {

/// Step rule for sparsity.rule: soft_top_k. Trains the scores of soft cells (weights of a matrix
/// that will be on or off together, such as a diagonal), and keeps the K best cells of each matrix.
/// The density gives K. PruneGrow holds the masks and masks the other cells; it neither prunes nor
/// grows with this rule. The base class sums gradients of scores over ranks and saves Adam's state.
///
/// Until the choice, weights are multiplied by their cell's factor, from a softmax of the scores. A
/// layer chooses once the factors are nearer than `threshold` to 1 or 0 (SoftCells::distance), at
/// the latest at `until`; both are keys of the rule. Stacks of experts wait for `until`, because
/// ranks do not exchange the distances of their experts.
class ChooseCells : public SoftTraining {
 public:
  /// `cells`: one for each layer of `prune_grow`, which must outlive this object, in its order.
  /// `choice`: keys of the rule. Throws ConfigError if `until` is after the end, `total_steps`.
  ChooseCells(const std::vector<std::shared_ptr<SoftCells>>& cells, const SoftChoice& choice,
              int64_t total_steps, PruneGrow& prune_grow);

  /// Updates scores by Adam, lowers the temperature, which moves the factors to 0 or 1, and makes
  /// the choices that are due: masks weights and, by `tensors`, optimizer state. Collective.
  void after_update(int64_t step, StepTensors& tensors) override;

  /// Prefixes of the names of Adam's saved states, before the weight's name.
  static constexpr const char* kMomentPrefix = "sparsity.cells.m.";
  static constexpr const char* kSquarePrefix = "sparsity.cells.v.";
  static constexpr const char* kUpdates = "sparsity.cells.updates";  ///< saved number of updates

 private:
  bool is_ready(const SoftCells& cells, int64_t step) const;

  std::vector<std::shared_ptr<SoftCells>> cells_;
  SoftChoice choice_;
  PruneGrow& prune_grow_;
};

}  // namespace shoal
