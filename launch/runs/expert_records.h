#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/recipe/recipe.h"
#include "launch/runs/curve.h"
#include "moe/exchange/unit_placement.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Reads the loads of experts at the last logged step up to `step` of the checkpoint's run. Returns
/// JSON with the keys `file`, `step`, `layers` (the step's objects in `file`, experts.jsonl, one
/// per MoE layer) and `metrics`. `metrics` has the step's `moe_*` of metrics.jsonl and the last
/// `router_agreement` up to `step`: the share of tokens that keep their first expert between
/// evaluations. Throws DataError, naming file and line, if no step is found or a line is invalid.
nlohmann::ordered_json read_expert_records(const std::string& checkpoint_path, int64_t step);

/// Loads of the units of a layer over steps: choices of each expert and memory unit (learned keys
/// with values).
struct LayerLoads {
  std::string layer;
  int64_t memory_units = 0;  ///< number of memory units, the layer's last units
  ListHistory load = {};
  /// Number of the other units, of layers that have loads.
  size_t num_experts() const {
    return load.columns().back().sum.size() - static_cast<size_t>(memory_units);
  }
};

/// Reads the loads of all logged steps up to `step`, by layer in the file's order. Throws DataError
/// if there are none or a line is invalid.
std::vector<LayerLoads> read_load_history(const std::string& checkpoint_path, int64_t step);

/// Reads the loads for `parallel.placement: by_load`: how often each unit (expert or memory unit)
/// was chosen at the last logged step of the run to resume. Does not check the loads against the
/// model. Empty for other placement rules, without a resume, and if nothing was logged. Collective;
/// equal on all ranks. Throws DataError for an invalid line.
UnitLoads logged_loads(const Recipe& recipe, Communicator& world);

/// Formats each unit's share of a layer's load, first experts, then memory units (learned tables of
/// keys and values): "blocks.2.moe: 0=60.0% 1=30.0%; memory units 2=10.0%".
std::string load_shares_line(const std::string& layer, const std::vector<double>& load_U,
                             int64_t num_memory_units);

/// Formats the result of read_expert_records: metrics of all layers, a table of the layers, each
/// unit's share of the load, and each expert rank's load over the ranks' mean. Omits rank loads
/// for layers with soft routing, where a unit's work does not depend on its load.
std::string expert_text(const nlohmann::ordered_json& records);

}  // namespace shoal
