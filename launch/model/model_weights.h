#pragma once

#include <cstdint>
#include <vector>

#include "launch/model/build_model.h"
#include "runtime/module/state.h"
#include "sparse/layers/sparse_state.h"

namespace shoal {

/// Weights of a model, to be saved, or loaded in place, under their names in checkpoints.
struct ModelWeights : Stateful {
  std::vector<Parameter> list;  ///< parameters and buffers
  SparseState sparse;           ///< permutations and other state of sparse layers
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override { sparse.fit_to(saved); }
  void tensors_loaded() override { sparse.tensors_loaded(); }
};

/// Every parameter, then every buffer, and sparse_forms.
ModelWeights weights_of(const BuiltModel& model);
/// Forms of sparse weights (functions that are applied to a weight before its product):
/// permutations, and soft cells (trained factors of groups of weights, until a mask is chosen).
/// Empty without sparse layers.
const SparseState& sparse_forms(const BuiltModel& model);
int64_t count_elements(const std::vector<Parameter>& parameters);

}  // namespace shoal
