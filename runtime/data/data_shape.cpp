#include "runtime/data/data_shape.h"

#include <fmt/format.h>

#include <utility>
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
    const bool labels_each = token_labels == sequence && !has_lengths;
    std::string tokens =
        fmt::format("{}{} {}tokens of a vocabulary of {}", has_lengths ? "up to " : "", sequence,
                    labels_each ? "labelled " : "", vocabulary);
    if (token_labels > 0 && !labels_each) tokens += fmt::format(", {} labelled", token_labels);
    parts.push_back(std::move(tokens));
  }
  if (values > 0) parts.push_back(counted(values, "number"));
  if (classes > 0) parts.push_back(fmt::format("labels of {} classes", classes));
  if (targets > 0) parts.push_back(counted(targets, "target"));
  return parts.empty() ? "nothing" : join_words(parts, " and ");
}

}  // namespace shoal
