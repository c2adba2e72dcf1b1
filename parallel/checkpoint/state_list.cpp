#include "parallel/checkpoint/state_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/save_plan.h"
#include "runtime/base/error.h"
#include "runtime/files/sha256.h"
#include "runtime/module/parameter.h"
#include "runtime/records/metrics.h"

namespace shoal {
namespace {

constexpr std::pair<torch::ScalarType, Dtype> kScalarTypes[] = {
    {torch::kDouble, Dtype::kF64}, {torch::kFloat, Dtype::kF32}, {torch::kBFloat16, Dtype::kBF16},
    {torch::kHalf, Dtype::kF16},   {torch::kLong, Dtype::kI64},  {torch::kInt, Dtype::kI32},
    {torch::kByte, Dtype::kU8},    {torch::kBool, Dtype::kBool},
};
constexpr size_t kMostDifferences = 6;
/// Starts of names of values that a checkpoint or a state may lack: the other's is then kept.
constexpr std::array<std::string_view, 3> kOptionalValues{"data.fingerprint", "data.tokenizer",
                                                          "trainer.patience."};
constexpr auto kNameOfEntry = [](const StateEntry& item) -> const std::string& {
  return item.entry.name;
};

bool is_optional(const std::string& name) {
  return std::ranges::any_of(kOptionalValues, [&](auto start) { return name.starts_with(start); });
}

Dtype dtype_of(const std::string& name, const torch::Tensor& value) {
  for (const auto& [scalar, dtype] : kScalarTypes) {
    if (value.scalar_type() == scalar) return dtype;
  }
  throw Error(ExitCode::kInternal, fmt::format("state '{}' has the dtype {}, which is not saved",
                                               name, torch::toString(value.scalar_type())));
}

template <typename Item, typename Name>
void sort_unique(std::vector<Item>& items, const Name& name) {
  std::ranges::sort(items, {}, name);
  const auto twice = std::ranges::adjacent_find(items, {}, name);
  if (twice != items.end()) {
    throw Error(ExitCode::kInternal,
                fmt::format("state '{}' is listed twice", std::invoke(name, *twice)));
  }
}

class Lister : public StateVisitor {
 public:
  StateList list;

  void tensor(const StateTensor& item) override {
    if (!item.value.defined()) {
      throw Error(ExitCode::kInternal, fmt::format("state '{}' is not allocated", item.name));
    }
    const torch::Tensor value = item.value.detach();
    SafetensorsEntry entry{item.name, dtype_of(item.name, value), value.sizes().vec(), 0, 0};
    if (!item.is_stacked && item.unit_ids.empty()) {
      list.tensors.push_back({std::move(entry), value});
      return;
    }
    TORCH_CHECK(value.dim() > 0 && value.size(0) == static_cast<int64_t>(item.unit_ids.size()),
                "state ", item.name, ": ", item.unit_ids.size(), " units, tensor ", value.sizes());
    entry.shape.erase(entry.shape.begin());
    for (size_t row = 0; row < item.unit_ids.size(); ++row) {
      entry.name = name_of_unit(item.name, item.unit_ids[row]);
      // A meta row has no values to save, and one for each expert would take memory.
      const bool has_values = !value.is_meta();
      list.tensors.push_back(
          {entry, has_values ? value[static_cast<int64_t>(row)] : torch::Tensor()});
    }
  }
  void integer(const std::string& name, int64_t& value) override {
    list.values.push_back({name, value});
  }
  void real(const std::string& name, double& value) override {
    list.values.push_back({name, value});
  }
  void text(const std::string& name, std::string& value) override {
    list.values.push_back({name, value});
  }
};

class Restorer : public StateVisitor {
 public:
  explicit Restorer(const Manifest& manifest) : manifest_(manifest) {}
  void tensor(const StateTensor& /*item*/) override {}
  void integer(const std::string& name, int64_t& value) override { restore(name, value); }
  void real(const std::string& name, double& value) override { restore(name, value); }
  void text(const std::string& name, std::string& value) override { restore(name, value); }

 private:
  const Manifest& manifest_;

  template <typename T>
  void restore(const std::string& name, T& value) {
    const ManifestValue* found = manifest_.find_value(name);
    if (found == nullptr && is_optional(name)) return;
    if (found == nullptr || !std::holds_alternative<T>(found->value)) {
      throw Error(ExitCode::kMismatch, fmt::format("the checkpoint has no value '{}'", name));
    }
    value = std::get<T>(found->value);
  }
};

void compare_tensors(const StateList& here, const Manifest& manifest,
                     std::vector<std::string>& differences) {
  for (const StateEntry& item : here.tensors) {
    const ManifestTensor* there = manifest.find_tensor(item.entry.name);
    if (there == nullptr) {
      differences.push_back(fmt::format("tensor '{}' is missing in it", item.entry.name));
    } else if (there->dtype != item.entry.dtype || there->shape != item.entry.shape) {
      differences.push_back(fmt::format("tensor '{}' is {} in it, {} here", item.entry.name,
                                        describe_tensor(there->dtype, there->shape),
                                        describe_tensor(item.entry.dtype, item.entry.shape)));
    }
  }
}

void compare_values(const StateList& here, const Manifest& manifest,
                    std::vector<std::string>& differences) {
  for (const ManifestValue& item : here.values) {
    const ManifestValue* there = manifest.find_value(item.name);
    if (there == nullptr && is_optional(item.name)) continue;
    if (there == nullptr || there->value.index() != item.value.index()) {
      differences.push_back(fmt::format("value '{}' is missing in it", item.name));
    }
  }
}

}  // namespace

std::vector<SafetensorsEntry> StateList::entries() const {
  std::vector<SafetensorsEntry> list;
  for (const StateEntry& item : tensors) list.push_back(item.entry);
  return list;
}

const StateEntry& StateList::find(const std::string& name) const {
  const auto found = std::ranges::lower_bound(tensors, name, {}, kNameOfEntry);
  if (found == tensors.end() || found->entry.name != name) {
    throw Error(ExitCode::kInternal, fmt::format("no state '{}' on this rank", name));
  }
  return *found;
}

StateList list_state(Stateful& state) {
  Lister lister;
  state.visit_state(lister);
  sort_unique(lister.list.tensors, kNameOfEntry);
  sort_unique(lister.list.values, &ManifestValue::name);
  return std::move(lister.list);
}

void restore_values(Stateful& state, const Manifest& manifest) {
  Restorer restorer(manifest);
  state.visit_state(restorer);
}

void require_fit(const StateList& here, const std::vector<std::string>& everywhere,
                 const Manifest& manifest, const std::string& path, bool ignore_extra) {
  std::vector<std::string> differences;
  compare_tensors(here, manifest, differences);
  compare_values(here, manifest, differences);
  if (!ignore_extra) {
    const std::set<std::string> known(everywhere.begin(), everywhere.end());
    for (const ManifestTensor& tensor : manifest.tensors) {
      if (!known.contains(tensor.name)) {
        differences.push_back(fmt::format("tensor '{}' is only in it", tensor.name));
      }
    }
    for (const ManifestValue& value : manifest.values) {
      const bool is_known =
          is_optional(value.name) ||
          std::ranges::find(here.values, value.name, &ManifestValue::name) != here.values.end();
      if (!is_known) differences.push_back(fmt::format("value '{}' is only in it", value.name));
    }
  }
  if (differences.empty()) return;
  if (differences.size() > kMostDifferences) {
    differences[kMostDifferences] =
        fmt::format("and {} more", differences.size() - kMostDifferences);
    differences.resize(kMostDifferences + 1);
  }
  throw Error(ExitCode::kMismatch,
              fmt::format("checkpoint '{}' does not fit this recipe's model: {}", path,
                          fmt::join(differences, "; ")),
              "use the recipe the checkpoint was trained with; `shoal inspect CKPT --tensors` "
              "lists what it holds");
}

std::string state_digest(Stateful& state, int64_t step, int64_t samples, Communicator& world) {
  const StateList list = list_state(state);
  const SavePlan plan = plan_save(gather_text(world, describe_entries(list.entries())));
  std::string own;
  for (const SafetensorsEntry& entry : plan[static_cast<size_t>(world.rank())]) {
    const torch::Tensor bytes = list.find(entry.name).value.to(torch::kCPU).contiguous();
    const std::string_view view(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
    own += sha256_hex(view) + "\n";
  }
  const std::vector<std::string> hashes = gather_text(world, own);
  std::map<std::string, std::string> sha256_of;
  std::vector<ManifestTensor> tensors;
  for (size_t rank = 0; rank < plan.size(); ++rank) {
    std::istringstream lines(hashes[rank]);
    for (const SafetensorsEntry& entry : plan[rank]) {
      lines >> sha256_of[entry.name];
      tensors.push_back({entry.name, entry.dtype, entry.shape, 0, 0, 0, 0});
    }
  }
  sort_unique(tensors, &ManifestTensor::name);
  return content_digest(tensors, step, samples,
                        [&](const ManifestTensor& tensor) { return sha256_of.at(tensor.name); });
}

std::string describe_value(const ManifestValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value.value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value.value)) return hex_float(*real);
  return "'" + std::get<std::string>(value.value) + "'";
}

torch::ScalarType scalar_type(Dtype dtype) {
  for (const auto& [scalar, known] : kScalarTypes) {
    if (known == dtype) return scalar;
  }
  TORCH_CHECK(false, "no scalar type for ", dtype_name(dtype));
}

torch::Tensor read_tensor(const CheckpointReader& reader, const ManifestTensor& tensor) {
  const torch::Tensor value = torch::empty(tensor.shape, scalar_type(tensor.dtype));
  reader.read(tensor, static_cast<char*>(value.data_ptr()));
  return value;
}

}  // namespace shoal
