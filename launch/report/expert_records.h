#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/report/heat_map.h"

namespace shoal {

/// What experts.jsonl tells of one step: one JSON object a Mixture-of-Experts layer; and what
/// metrics.jsonl tells of all layers together.
struct ExpertRecords {
  std::string file;
  int64_t step = 0;
  std::vector<std::string> layers;  ///< JSON texts, in the file's order
  /// A JSON object: the keys `moe_...` of the step, and `router_agreement` of the last evaluation
  /// up to it. Empty if the file has none of them.
  std::string metrics = "{}";
};

/// The records of the last logged step at or before `step` of the run that the checkpoint belongs
/// to. Throws DataError, naming the file, if there is none, and the line too if one is no record.
ExpertRecords read_expert_records(const std::string& checkpoint_path, int64_t step);

/// The loads of all logged steps up to `step`, by layer in the file's order. Throws as
/// read_expert_records does.
std::vector<LoadHistory> read_load_history(const std::string& checkpoint_path, int64_t step);

/// One JSON object, without line end.
std::string expert_json(const ExpertRecords& records);
/// The metrics of all layers, a table of the layers, the share of the load that each unit got, and,
/// where load is work, how far the load of each expert rank is from their mean.
std::string expert_text(const ExpertRecords& records);

}  // namespace shoal
