#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/files/safetensors.h"

namespace shoal {

/// The tensors each rank writes: one list a rank, sorted by name; offsets are not filled in.
using SavePlan = std::vector<std::vector<SafetensorsEntry>>;

/// One file of a save and the rank that writes it.
struct PlannedShard {
  int64_t rank = 0;
  std::vector<SafetensorsEntry> entries;
};

/// A rank's tensors as one text, for exchange.
std::string describe_entries(const std::vector<SafetensorsEntry>& entries);

/// Assigns each tensor to one of the ranks that hold it, balancing bytes greedily: the largest
/// first, to the least loaded holder, ties to the lower name and rank. `lists` are what
/// describe_entries gave on each rank; equal lists give equal plans. Throws Error (exit 31) if two
/// ranks hold different tensors under one name.
SavePlan plan_save(const std::vector<std::string>& lists);

/// The files of a save in the order of their ranks: one for each rank with tensors, more where a
/// header would be longer than `most_header_bytes`.
std::vector<PlannedShard> plan_shards(SavePlan plan,
                                      uint64_t most_header_bytes = kLargestSafetensorsHeader);

}  // namespace shoal
