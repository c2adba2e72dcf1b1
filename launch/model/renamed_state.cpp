#include "launch/model/renamed_state.h"

#include <string_view>

#include "sparse/permutations/permutation.h"
#include "sparse/prune_grow.h"
#include "sparse/soft_cells.h"

namespace shoal {

std::string source_name(const std::string& name, const SourceOf& source_of) {
  for (const std::string_view prefix :
       {Permutation::kIndexPrefix, Permutation::kSoftPrefix, PruneGrow::kPrefix,
        SoftCells::kScorePrefix, SoftCells::kTemperaturePrefix}) {
    if (!name.starts_with(prefix)) continue;
    const auto source = source_of.find(name.substr(prefix.size()));
    if (source != source_of.end()) return std::string(prefix) + source->second;
  }
  return name;
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
