#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/files/safetensors.h"

namespace shoal {

/// For each rank the tensors that it writes into a checkpoint, sorted by name; no offsets yet.
using SavePlan = std::vector<std::vector<SafetensorsEntry>>;

/// One file (shard) of a checkpoint, and the rank that writes it.
struct PlannedShard {
  int64_t rank = 0;
  std::vector<SafetensorsEntry> entries;
};

/// Returns a rank's tensors (name, dtype, shape) as text, to be gathered for plan_save.
std::string describe_entries(const std::vector<SafetensorsEntry>& entries);

/// Divides a checkpoint among ranks: assigns each tensor to one of the ranks that hold it,
/// balancing bytes greedily (largest tensor first, to the holder with the fewest bytes so far; ties
/// to the lower name and rank). `lists`: the describe_entries texts of all ranks, in rank order.
/// Deterministic, so every rank computes the same plan without communication. Throws Error (exit
/// 31) if two ranks hold tensors of different dtype or shape under one name.
SavePlan plan_save(const std::vector<std::string>& lists);

/// Returns the files of a plan in the order of ranks: one for each rank with tensors, or several if
/// its safetensors header would be longer than `most_header_bytes`.
std::vector<PlannedShard> plan_shards(SavePlan plan,
                                      uint64_t most_header_bytes = kLargestSafetensorsHeader);

}  // namespace shoal
