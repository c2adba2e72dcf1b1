#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/model/renamed_state.h"
#include "parallel/checkpoint/manifest.h"
#include "runtime/module/state.h"
#include "sparse/prune_grow.h"
#include "sparse/soft_cells.h"

namespace shoal {

/// Whether a checkpoint is of a sparse training.
bool has_masks(const Manifest& checkpoint);

/// The masks that a checkpoint has of a training's layers, by their own names, without what else
/// its rule has.
class MasksByName : public Stateful {
 public:
  MasksByName(PruneGrow& prune_grow, const Manifest& checkpoint);
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override { prune_grow_.tensors_loaded(); }

 private:
  PruneGrow& prune_grow_;
  std::vector<size_t> layers_;
};

/// The masks that go with weights which a checkpoint has under other names, or the scores of cells
/// that it has not chosen yet. Layers that it has neither of keep their own.
class TakenMasks : public Stateful {
 public:
  /// `prune_grow`: null without sparse layers. Of its layers, and of `soft_cells`, one a layer or
  /// none, those whose weights are in `source_of`. Throws Error (exit 12) where the checkpoint at
  /// `path` has scores and the model's layer has no soft cells.
  TakenMasks(PruneGrow* prune_grow, const std::vector<std::shared_ptr<SoftCells>>& soft_cells,
             SourceOf source_of, const Manifest& checkpoint, const std::string& path);

  /// Throws Error (exit 12) if units of a stack are among `missing`, the model's names of weights
  /// that no rank takes: they would keep masks of their own.
  void require_whole(const std::vector<std::string>& missing) const;

  /// By the checkpoint's names.
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;

 private:
  PruneGrow* prune_grow_;
  std::vector<size_t> layers_;
  std::vector<std::shared_ptr<SoftCells>> soft_cells_;  ///< one of each of these layers, or none
  SourceOf source_of_;
};

}  // namespace shoal
