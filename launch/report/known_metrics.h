#pragma once

#include <string>
#include <string_view>

namespace shoal {

/// What a number counts, which decides how it is written.
enum class Quantity {
  kPlain,
  kShare,  ///< of 1, written in percent
  kBytes,
};

/// Where a number of the training steps belongs.
enum class MetricGroup { kTraining, kSpeed, kExperts, kGates, kSparsity, kOther };

struct MetricInfo {
  std::string label;
  Quantity quantity = Quantity::kPlain;
  MetricGroup group = MetricGroup::kOther;
  bool is_shown_constant = false;  ///< drawn even if it is the same throughout
};

/// Of a key of metrics.jsonl, experts.jsonl, gates.jsonl or permutations.jsonl. A key that is not
/// known is its own label, without underscores; its beginning decides the group.
MetricInfo metric_info(std::string_view key);

/// `0.6034`, `3e-05`, `12,345`, `8.2 %`, `1.21 GiB`.
std::string value_text(double value, Quantity quantity);

/// `1,560`.
std::string step_text(double step);

}  // namespace shoal
