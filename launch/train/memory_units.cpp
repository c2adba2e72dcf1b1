#include "launch/train/memory_units.h"

#include "moe/moe_layer.h"
#include "moe/nexus/nexus_layer.h"

namespace shoal {
namespace {

int64_t memory_units_of(const MoeStage& stage) {
  const int64_t num_units = stage.info().num_units;
  if (const auto* nexus = dynamic_cast<const NexusLayer*>(&stage)) {
    return num_units - nexus->num_experts();
  }
  const auto* layer = dynamic_cast<const MoeLayer*>(&stage);
  return layer != nullptr && layer->options().experts.name() == "memory" ? num_units : 0;
}

}  // namespace

MemoryUnits count_memory_units(const std::vector<std::shared_ptr<MoeStage>>& stages) {
  MemoryUnits units;
  for (const auto& stage : stages) {
    if (const int64_t count = memory_units_of(*stage); count > 0) units[stage->path()] = count;
  }
  return units;
}

}  // namespace shoal
