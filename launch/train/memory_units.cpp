#include "launch/train/memory_units.h"

namespace shoal {

MemoryUnits count_memory_units(const std::vector<std::shared_ptr<MoeStage>>& stages) {
  MemoryUnits units;
  for (const auto& stage : stages) {
    const int64_t count = stage->info().num_memory_units;
    if (count > 0) units[stage->path()] = count;
  }
  return units;
}

}  // namespace shoal
