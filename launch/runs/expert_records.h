#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/pages/heat_map.h"

namespace shoal {

/// How experts were loaded at the last logged step at or before `step` of the run that the
/// checkpoint belongs to: `file` and `step`; `metrics`, the keys `moe_...` of that step and the
/// `router_agreement` of the last evaluation up to `step`, as far as metrics.jsonl has them; and
/// `layers`, the step's objects in experts.jsonl, one a Mixture-of-Experts layer. Throws DataError,
/// naming the file, if it has no such step, and the line too if one is no record.
nlohmann::ordered_json read_expert_records(const std::string& checkpoint_path, int64_t step);

/// The loads of all logged steps up to `step`, by layer in the file's order. Throws as
/// read_expert_records does.
std::vector<LoadHistory> read_load_history(const std::string& checkpoint_path, int64_t step);

/// A line with the share of the load that each unit got, memory units apart:
/// "blocks.2.moe: 0=60.0% 1=30.0%; memory units 2=10.0%".
std::string load_shares_line(const std::string& layer, const std::vector<double>& load_U,
                             int64_t num_memory_units);

/// Of read_expert_records: the metrics of all layers, a table of the layers, the share of the load
/// that each unit got, and, where load is work, how far the load of each expert rank is from their
/// mean.
std::string expert_text(const nlohmann::ordered_json& records);

}  // namespace shoal
