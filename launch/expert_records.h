#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal {

/// What experts.jsonl tells of one step: one JSON object a Mixture-of-Experts layer.
struct ExpertRecords {
  std::string file;
  int64_t step = 0;
  std::vector<std::string> layers;  ///< JSON texts, in the file's order
};

/// The records of the last logged step at or before `step` of the run that the checkpoint belongs
/// to. Throws DataError, naming the file, if there is none, and the line too if one is no record.
ExpertRecords read_expert_records(const std::string& checkpoint_path, int64_t step);

/// One JSON object, without line end.
std::string expert_json(const ExpertRecords& records);
/// A table of the layers, the share of the choices each expert got, and how far the load of each
/// expert rank is from their mean.
std::string expert_text(const ExpertRecords& records);

}  // namespace shoal
