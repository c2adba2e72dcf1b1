#include "launch/weights/renamed_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "sparse/layers/soft_cells.h"
#include "sparse/permutations/permutation.h"
#include "sparse/training/prune_grow.h"

namespace shoal {

std::string name_of_first_unit(const Parameter& parameter) {
  return parameter.unit_ids.empty() ? parameter.name
                                    : name_of_unit(parameter.name, parameter.unit_ids[0]);
}

std::string source_name(const std::string& name, const SourceOf& source_of) {
  for (const std::string_view prefix :
       {Permutation::kIndexPrefix, Permutation::kSoftPrefix, SparseLayer::kMaskPrefix,
        SoftCells::kScorePrefix, SoftCells::kTemperaturePrefix}) {
    if (!name.starts_with(prefix)) continue;
    const auto source = source_of.find(name.substr(prefix.size()));
    if (source != source_of.end()) return std::string(prefix) + source->second;
  }
  return name;
}

SavedNames by_source_names(const SavedNames& saved, const SourceOf& source_of) {
  return [&](const std::string& name) { return saved(source_name(name, source_of)); };
}

void require_whole_stack(const Parameter& weight, const std::vector<std::string>& missing,
                         std::string_view what) {
  if (!weight.is_stacked()) return;
  const auto lost = std::ranges::find_if(
      missing, [&](const std::string& name) { return matches_glob(name, weight.name); });
  if (lost == missing.end()) return;
  throw Error(ExitCode::kMismatch,
              fmt::format("model.init_from: {} would keep its random values and its {}, while "
                          "others of its stack are taken with theirs",
                          *lost, what),
              "take all experts of the layer, or none");
}

void RenamingVisitor::tensor(const StateTensor& entry) {
  if (!entry.is_stacked) {
    visitor_.tensor({source_name(entry.name, source_of_), entry.value});
    return;
  }
  for (size_t i = 0; i < entry.unit_ids.size(); ++i) {
    torch::Tensor row = entry.value[static_cast<int64_t>(i)];
    const std::string name = name_of_unit(entry.name, entry.unit_ids[i]);
    visitor_.tensor({source_name(name, source_of_), row});
  }
}

}  // namespace shoal
