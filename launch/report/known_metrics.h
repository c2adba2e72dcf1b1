#pragma once

#include <string>
#include <string_view>

namespace shoal {

/// Kind of a metric's values, which decides their format.
enum class Quantity {
  kPlain,
  kShare,  ///< in [0, 1], printed as a percentage
  kBytes,
};

/// Section of the report in which a metric of training steps is shown.
enum class MetricGroup { kTraining, kSpeed, kExperts, kGates, kSparsity, kOther };

/// How a metric is labelled, formatted and grouped.
struct MetricInfo {
  std::string label;
  Quantity quantity = Quantity::kPlain;
  MetricGroup group = MetricGroup::kOther;
  bool is_shown_constant = false;  ///< shown even if all values are equal
  bool is_logarithmic = false;     ///< colours of heat maps follow the logarithm
};

/// Describes a key of metrics.jsonl, experts.jsonl, gates.jsonl, permutations.jsonl or
/// layers.jsonl. An unknown key becomes its own label, without underscores; its prefix decides the
/// group.
MetricInfo metric_info(std::string_view key);

/// Formats a value: `0.6034`, `3e-05`, `12,345`, `8.2 %`, `1.21 GiB`.
std::string value_text(double value, Quantity quantity);

}  // namespace shoal
