#include "launch/recipe.h"

#include <algorithm>
#include <filesystem>

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

void Recipe::validate(Problems& problems) const {
  if (!stays_below(run.name)) {
    problems.add("run.name", "'" + run.name +
                                 "' does not name a folder below run.root; leave out "
                                 "'.', '..' and slashes at either end, and put other places into "
                                 "run.root");
  }
  const int64_t micro_batch = train.batch / train.accumulate;
  if (train.batch % train.accumulate != 0) {
    problems.add("train.batch", text(train.batch) + " samples cannot be cut into " +
                                    text(train.accumulate) +
                                    " equal micro-steps (train.accumulate); try " +
                                    neighbours(train.batch, train.accumulate * train.group));
  } else if (micro_batch % train.group != 0) {
    problems.add("train.batch", "batch / accumulate = " + text(train.batch) + " / " +
                                    text(train.accumulate) + " = " + text(micro_batch) +
                                    " samples are not whole routing groups of " +
                                    text(train.group) + " (train.group); try batch " +
                                    neighbours(train.batch, train.accumulate * train.group));
  }
}

}  // namespace shoal
