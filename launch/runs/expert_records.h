#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/pages/heat_map.h"

namespace shoal {

/// Expert loads at the last logged step up to `step` of the checkpoint's run: `file` and `step`;
/// `metrics`, the keys `moe_...` of that step and the last evaluation's `router_agreement` from
/// metrics.jsonl, if present; and `layers`, the step's objects in experts.jsonl, one a
/// Mixture-of-Experts layer. Throws DataError, naming the file, if it has no such step, and the
/// line if one is not a record.
nlohmann::ordered_json read_expert_records(const std::string& checkpoint_path, int64_t step);

/// Loads at all logged steps up to `step`, by layer in the file's order. Throws as
/// read_expert_records.
std::vector<LoadHistory> read_load_history(const std::string& checkpoint_path, int64_t step);

/// A line with each unit's share of the load, memory units separately: "blocks.2.moe: 0=60.0%
/// 1=30.0%; memory units 2=10.0%".
std::string load_shares_line(const std::string& layer, const std::vector<double>& load_U,
                             int64_t num_memory_units);

/// Text of read_expert_records: metrics of all layers, a table of the layers, each unit's share of
/// the load and, if load is work, each expert rank's load relative to their mean.
std::string expert_text(const nlohmann::ordered_json& records);

}  // namespace shoal
