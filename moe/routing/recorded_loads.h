#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// U units
namespace shoal {

/// A line of a run's experts.jsonl: how often each unit of a layer was chosen at a step.
struct LoadRecord {
  int64_t step = 0;
  std::string layer;
  std::vector<double> load_U;  ///< finite, not negative
  int64_t memory_units = 0;    ///< the last units, in a layer that also has experts
  std::string text;            ///< the whole line, a JSON object
  int64_t line = 0;            ///< number of the line, from 1
};

/// Calls `use` with each record of the file, in order. An unterminated last line, still being
/// written or cut off by a crash, is ignored. Throws DataError, with `hint`, if the file cannot be
/// read, and for a line that is not a record; names FILE:LINE.
void for_each_load_record(const std::string& file, const std::string& hint,
                          const std::function<void(const LoadRecord&)>& use);

}  // namespace shoal
