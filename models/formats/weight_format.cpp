#include "models/formats/weight_format.h"

#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/base/error.h"

namespace shoal {

namespace {

torch::Tensor cast(const torch::Tensor& value, torch::Dtype dtype, const std::string& name) {
  const torch::Tensor result = value.to(dtype);
  if (at::equal(result.isinf(), value.isinf())) return result;
  throw Error(
      ExitCode::kMismatch,
      fmt::format("'{}' holds numbers that are too large for {}", name, c10::toString(dtype)),
      "choose a wider dtype");
}

}  // namespace

std::vector<int64_t> WeightName::shape_of_theirs(std::vector<int64_t> shape_of_ours) const {
  if (!shape.empty()) return shape;
  if (is_transposed) std::ranges::reverse(shape_of_ours);
  return shape_of_ours;
}

torch::Tensor WeightName::to_ours(torch::Tensor value, const std::vector<int64_t>& shape_of_ours,
                                  torch::Dtype dtype) const {
  value = cast(value, dtype, theirs);
  if (is_transposed) value = value.t();
  const torch::Tensor result = torch::zeros(shape_of_ours, dtype);
  if (value.numel() < result.numel()) {
    result.narrow(0, 0, value.size(0)).copy_(value);
  } else {
    result.copy_(value.reshape(shape_of_ours));
  }
  return result;
}

torch::Tensor WeightName::to_theirs(torch::Tensor value, torch::Dtype dtype) const {
  const std::vector<int64_t> shape_of_result = shape_of_theirs(value.sizes().vec());
  if (is_transposed) value = value.t();
  if (c10::multiply_integers(shape_of_result) < value.numel()) {
    value = value.narrow(0, 0, shape_of_result.front());
  }
  return cast(value, dtype, ours).contiguous().reshape(shape_of_result);
}

void require_all_named(const std::vector<WeightName>& names, const StateList& model,
                       const std::string& hint) {
  std::set<std::string> named;
  for (const WeightName& name : names) named.insert(name.ours);
  Mistakes mistakes;
  for (const StateEntry& item : model.tensors) {
    if (!named.contains(item.entry.name)) mistakes.add("'" + item.entry.name + "'");
  }
  mistakes.throw_if_any("the format has no place for weights of the model:", hint);
}

void add_layer(std::vector<WeightName>& names, const std::string& ours, const std::string& theirs) {
  for (const char* part : {".weight", ".bias"}) names.push_back({ours + part, theirs + part});
}

}  // namespace shoal
