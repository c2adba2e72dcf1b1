#include "launch/model/model_weights.h"

#include "sparse/sparse_model.h"

namespace shoal {

void ModelWeights::visit_state(StateVisitor& visitor) {
  for (const Parameter& weight : list) {
    torch::Tensor value = weight.tensor.detach();
    visitor.tensor({weight.name, value, weight.is_stacked(), weight.unit_ids});
  }
  sparse.visit_state(visitor);
}

const SparseState& sparse_forms(const BuiltModel& model) {
  static const SparseState kNone;
  return model.sparse == nullptr ? kNone : model.sparse->forms();
}

ModelWeights weights_of(const BuiltModel& model) {
  ModelWeights weights;
  weights.list = model.parameters;
  weights.list.insert(weights.list.end(), model.buffers.begin(), model.buffers.end());
  weights.sparse = sparse_forms(model);
  return weights;
}

int64_t count_elements(const std::vector<Parameter>& parameters) {
  int64_t total = 0;
  for (const Parameter& parameter : parameters) total += parameter.tensor.numel();
  return total;
}

}  // namespace shoal
