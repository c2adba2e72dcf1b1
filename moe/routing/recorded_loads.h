#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// U units
namespace shoal {

/// A line of experts.jsonl, the log of loads that each training writes: how often each unit (expert
/// or memory unit) of a MoE layer was chosen at an optimizer step.
struct LoadRecord {
  int64_t step = 0;
  std::string layer;           ///< module path of the layer
  std::vector<double> load_U;  ///< finite, not negative
  int64_t memory_units = 0;    ///< number of memory units, the last units; the others are experts
  std::string text;            ///< the whole line, a JSON object
  int64_t line = 0;            ///< number of the line, from 1
};

/// Reads the file at path `file` and calls `use` with each record, in order. A last line without
/// line end, still being written or cut off by a crash, is ignored. Throws DataError, with the
/// advice `hint`, if the file cannot be read or, naming FILE:LINE, if a line is no record.
void for_each_load_record(const std::string& file, const std::string& hint,
                          const std::function<void(const LoadRecord&)>& use);

}  // namespace shoal
