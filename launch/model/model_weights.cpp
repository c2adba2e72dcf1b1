#include "launch/model/model_weights.h"

namespace shoal {

void ModelWeights::visit_state(StateVisitor& visitor) {
  for (const Parameter& weight : list) {
    torch::Tensor value = weight.tensor.detach();
    visitor.tensor({weight.name, value, weight.is_stacked(), weight.unit_ids});
  }
  for (const auto& permutation : permutations) permutation->visit_state(visitor);
  for (const auto& cells : soft_cells) cells->visit_state(visitor);
}

void ModelWeights::fit_to(const SavedNames& saved) {
  for (const auto& permutation : permutations) permutation->fit_to(saved);
  for (const auto& cells : soft_cells) cells->fit_to(saved);
}

void ModelWeights::tensors_loaded() {
  for (const auto& permutation : permutations) permutation->tensors_loaded();
}

ModelWeights weights_of(const BuiltModel& model) {
  ModelWeights weights;
  weights.list = model.parameters;
  weights.list.insert(weights.list.end(), model.buffers.begin(), model.buffers.end());
  weights.permutations = model.permutations;
  weights.soft_cells = model.soft_cells;
  return weights;
}

int64_t count_elements(const std::vector<Parameter>& parameters) {
  int64_t total = 0;
  for (const Parameter& parameter : parameters) total += parameter.tensor.numel();
  return total;
}

}  // namespace shoal
