#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/model/build_model.h"
#include "launch/weights/renamed_state.h"
#include "parallel/checkpoint/manifest.h"
#include "runtime/module/state.h"
#include "sparse/training/prune_grow.h"

namespace shoal {

/// Whether a checkpoint is of a sparse training.
bool has_masks(const Manifest& checkpoint);

/// Whether the checkpoint has a permutation of this weight, of a stack of one unit's.
bool is_permuted(const Manifest& checkpoint, const std::string& weight);

/// Throws Error (exit 12): the checkpoint at `path` has a permutation of this weight, the model has
/// none.
[[noreturn]] void refuse_permuted(const std::string& path, const std::string& weight);

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

/// The sparse state that goes with weights which a checkpoint has under other names: their
/// permutations, and their masks or the scores of cells that it has not chosen yet. What the
/// checkpoint has nothing of stays as it is.
class TakenSparseState : public Stateful {
 public:
  /// Takes the state of the weights in `source_of`. `prune_grow`: null without sparse layers.
  /// Throws Error (exit 12) if the checkpoint at `path` has a permutation or scores of a weight,
  /// and `model` has none.
  TakenSparseState(const BuiltModel& model, PruneGrow* prune_grow, SourceOf source_of,
                   const Manifest& checkpoint, const std::string& path);

  /// Throws Error (exit 12) if units of a stack are among `missing`, the model's names of weights
  /// that no rank takes: they would keep an order and masks of their own.
  void require_whole(const std::vector<std::string>& missing) const;

  /// By the checkpoint's names.
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;

 private:
  void take_permutations(const BuiltModel& model, const Manifest& checkpoint,
                         const std::string& path);
  void take_cells(const BuiltModel& model, const Manifest& checkpoint);

  SourceOf source_of_;
  std::vector<std::shared_ptr<Permutation>> permutations_;
  PruneGrow* prune_grow_;
  std::vector<size_t> layers_;                          ///< of prune_grow_
  std::vector<std::shared_ptr<SoftCells>> soft_cells_;  ///< one of each of these layers, or none
};

}  // namespace shoal
