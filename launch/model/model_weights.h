#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "launch/model/build_model.h"
#include "runtime/module/state.h"

namespace shoal {

/// Weights that are saved or loaded in place, by the names that a checkpoint has for them.
struct ModelWeights : Stateful {
  std::vector<Parameter> list;
  std::vector<std::shared_ptr<Permutation>> permutations;
  std::vector<std::shared_ptr<SoftCells>> soft_cells;
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& saved) override;
  void tensors_loaded() override;
};

/// Every parameter, then every buffer, every permutation and all soft cells.
ModelWeights weights_of(const BuiltModel& model);
int64_t count_elements(const std::vector<Parameter>& parameters);

}  // namespace shoal
