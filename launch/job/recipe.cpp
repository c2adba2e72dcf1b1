#include "launch/job/recipe.h"

#include <algorithm>
#include <filesystem>

#include "runtime/base/text.h"

namespace shoal {
namespace {

std::string text(int64_t value) { return std::to_string(value); }

/// "8 or 16": the multiples of `unit` around `value`.
std::string neighbours(int64_t value, int64_t unit) {
  const int64_t below = value / unit * unit;
  return (below > 0 ? text(below) + " or " : "") + text(below + unit);
}

/// Whether a path stays below the folder it is appended to, and names something there.
bool stays_below(const std::filesystem::path& path) {
  return path.is_relative() && std::none_of(path.begin(), path.end(), [](const auto& part) {
           return part.empty() || part == "." || part == "..";
         });
}

}  // namespace

void RunOptions::validate(Problems& problems) const {
  if (stays_below(name)) return;
  problems.add("name", "'" + name +
                           "' does not name a folder below run.root; leave out '.', '..' and "
                           "slashes at either end, and put other places into run.root");
}

void TrainOptions::validate(Problems& problems) const {
  const int64_t micro_batch = batch / accumulate;
  const std::string advice = "try batch " + neighbours(batch, accumulate * group);
  if (batch % accumulate != 0) {
    problems.add("batch", counted(batch, "sample") + " cannot be cut into " + text(accumulate) +
                              " equal micro-steps (train.accumulate); " + advice);
  } else if (micro_batch % group != 0) {
    problems.add("batch", "batch / accumulate = " + text(batch) + " / " + text(accumulate) + " = " +
                              counted(micro_batch, "sample") + (micro_batch == 1 ? " is" : " are") +
                              " not whole routing groups of " + text(group) + " (train.group); " +
                              advice);
  }
}

}  // namespace shoal
