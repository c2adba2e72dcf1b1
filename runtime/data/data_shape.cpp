#include "runtime/data/data_shape.h"

#include <fmt/format.h>

#include <vector>

#include "runtime/base/text.h"

namespace shoal {

std::string DataShape::text() const {
  std::vector<std::string> parts;
  if (image) {
    parts.push_back(
        fmt::format("images of {} x {} x {}", image->channels, image->height, image->width));
  }
  if (sequence > 0) {
    parts.push_back(fmt::format("{} {}tokens of a vocabulary of {}", sequence,
                                labels_tokens ? "labelled " : "", vocabulary));
  }
  if (values > 0) parts.push_back(counted(values, "number"));
  if (classes > 0) parts.push_back(fmt::format("labels of {} classes", classes));
  if (targets > 0) parts.push_back(counted(targets, "target"));
  return parts.empty() ? "nothing" : join_words(parts, " and ");
}

}  // namespace shoal
