#include "models/formats/weight_format.h"

#include <algorithm>
#include <set>

namespace shoal {

std::vector<int64_t> WeightName::shape_of_theirs(std::vector<int64_t> ours) const {
  if (!shape.empty()) return shape;
  if (is_transposed) std::reverse(ours.begin(), ours.end());
  return ours;
}

torch::Tensor WeightName::to_ours(torch::Tensor tensor, const std::vector<int64_t>& ours,
                                  torch::Dtype dtype) const {
  if (is_transposed) tensor = tensor.t();
  const torch::Tensor result = torch::zeros(ours, dtype);
  if (tensor.numel() < result.numel()) {
    result.narrow(0, 0, tensor.size(0)).copy_(tensor);
  } else {
    result.copy_(tensor.reshape(ours));
  }
  return result;
}

torch::Tensor WeightName::to_theirs(torch::Tensor ours, torch::Dtype dtype) const {
  const std::vector<int64_t> theirs = shape_of_theirs(ours.sizes().vec());
  if (is_transposed) ours = ours.t();
  if (c10::multiply_integers(theirs) < ours.numel()) ours = ours.narrow(0, 0, theirs.front());
  return ours.to(dtype).contiguous().reshape(theirs);
}

void require_all_named(const std::vector<WeightName>& names, const StateList& model) {
  std::set<std::string> named;
  for (const WeightName& name : names) named.insert(name.ours);
  Mistakes mistakes;
  for (const StateEntry& item : model.tensors) {
    if (!named.contains(item.entry.name)) mistakes.add("'" + item.entry.name + "'");
  }
  mistakes.throw_if_any("the format has no place for weights of the model:");
}

void add_layer(std::vector<WeightName>& names, const std::string& ours, const std::string& theirs) {
  for (const char* part : {".weight", ".bias"}) names.push_back({ours + part, theirs + part});
}

}  // namespace shoal
