#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "moe/moe_stage.h"

namespace shoal {

/// How many of a MoE layer's units are memory units, over all ranks; the others are experts.
/// Layers without any are left out.
using MemoryUnits = std::map<std::string, int64_t>;

MemoryUnits count_memory_units(const std::vector<std::shared_ptr<MoeStage>>& stages);

}  // namespace shoal
