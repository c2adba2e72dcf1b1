#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/pages/load_panel.h"
#include "launch/recipe/recipe.h"
#include "moe/exchange/unit_placement.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Reads how experts were loaded at the last logged step up to `step` from the files of the
/// checkpoint's run. Returns `file` and `step`; `layers`: that step's objects in experts.jsonl, one
/// per MoE layer; `metrics`: what metrics.jsonl has of that step's keys `moe_...`, and the last
/// `router_agreement` up to `step`, the share of tokens that keep their first expert between two
/// evaluations. Throws DataError, naming file and line, if no step is found or a line is invalid.
nlohmann::ordered_json read_expert_records(const std::string& checkpoint_path, int64_t step);

/// Reads the loads of all logged steps up to `step`, by layer in the file's order. Throws DataError
/// if there are none or a line is invalid.
std::vector<LoadHistory> read_load_history(const std::string& checkpoint_path, int64_t step);

/// Loads for parallel.placement by_load, not checked against the model: tokens routed to each unit
/// at the last logged step of the run to resume. Empty for other placement rules, without a resume,
/// and if nothing was logged. Collective; equal on all ranks. Throws DataError for an invalid line.
UnitLoads logged_loads(const Recipe& recipe, Communicator& world);

/// Formats each unit's share of the load, memory units (keys with values, not experts) last:
/// "blocks.2.moe: 0=60.0% 1=30.0%; memory units 2=10.0%".
std::string load_shares_line(const std::string& layer, const std::vector<double>& load_U,
                             int64_t num_memory_units);

/// Formats the result of read_expert_records: metrics of all layers, a table of the layers, each
/// unit's share of the load, and each expert rank's load over the ranks' mean. Omits rank loads
/// for layers with soft routing, where a unit's work does not depend on its load.
std::string expert_text(const nlohmann::ordered_json& records);

}  // namespace shoal
