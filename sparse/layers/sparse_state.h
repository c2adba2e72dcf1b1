#pragma once

#include <memory>
#include <vector>

#include "runtime/module/state.h"
#include "sparse/layers/soft_cells.h"
#include "sparse/layers/sparse_masks.h"
#include "sparse/permutations/permutation.h"

namespace shoal {

/// Saved state of sparse layers, or a part of it: permutations, soft cells (trained weights of a
/// mask's cells, until they are chosen) and masks.
struct SparseState : Stateful {
  std::vector<std::shared_ptr<Permutation>> permutations;
  std::vector<std::shared_ptr<SoftCells>> soft_cells;
  SparseMasks* masks = nullptr;  ///< null: none
  std::vector<size_t> masked;    ///< layers of `masks` whose mask is part of the state

  /// Lists permutations, then soft cells, then masks.
  void visit_state(StateVisitor& visitor) override {
    for (const auto& permutation : permutations) permutation->visit_state(visitor);
    for (const auto& cells : soft_cells) cells->visit_state(visitor);
    for (const size_t layer : masked) masks->visit_mask(layer, visitor);
  }
  /// Called before a checkpoint is loaded. Gives objects the tensors that it has, and no others.
  void fit_to(const SavedNames& saved) override {
    for (const auto& permutation : permutations) permutation->fit_to(saved);
    for (const auto& cells : soft_cells) cells->fit_to(saved);
    for (const size_t layer : masked) masks->fit_to(layer, saved);
  }
  /// Called after loading. Zeroes weights that are off, also in layers outside `masked`, whose
  /// weights may have been loaded without a mask. Soft cells use their loaded tensors as they are.
  void tensors_loaded() override {
    for (const auto& permutation : permutations) permutation->tensors_loaded();
    if (masks != nullptr) masks->tensors_loaded();
  }
};

}  // namespace shoal
