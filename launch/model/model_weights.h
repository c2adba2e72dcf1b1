#pragma once

#include <cstdint>
#include <vector>

#include "launch/model/build_model.h"
#include "runtime/module/state.h"
#include "sparse/layers/sparse_state.h"

namespace shoal {

/// Weights of a model, to be saved, or loaded in place, under their names in checkpoints. Loading
/// calls fit_to, which gives sparse layers the tensors that the checkpoint has (soft permutations
/// or final ones), visit_state, and after reading tensors_loaded, which applies masks to weights.
struct ModelWeights : Stateful {
  std::vector<Parameter> list;  ///< parameters and buffers
  SparseState sparse;           ///< permutations, soft cells; masks if the caller adds them
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override { sparse.fit_to(saved); }
  void tensors_loaded() override { sparse.tensors_loaded(); }
};

/// Every parameter, then every buffer, and sparse_forms; no masks.
ModelWeights weights_of(const BuiltModel& model);
/// Forms of sparse weights (functions that are applied to a weight before its product):
/// permutations, and soft cells (groups of weights, such as diagonals, each with a trained factor
/// until training chooses which groups the mask keeps). Empty without sparse layers.
const SparseState& sparse_forms(const BuiltModel& model);
int64_t count_elements(const std::vector<Parameter>& parameters);

}  // namespace shoal
