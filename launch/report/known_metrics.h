#pragma once

#include <string>
#include <string_view>

namespace shoal {

/// The unit of a number, which decides its format.
enum class Quantity {
  kPlain,
  kShare,  ///< share of 1, shown in percent
  kBytes,
};

/// Section of the page to which a metric of training steps belongs.
enum class MetricGroup { kTraining, kSpeed, kExperts, kGates, kSparsity, kOther };

/// How a metric is labelled, formatted and grouped.
struct MetricInfo {
  std::string label;
  Quantity quantity = Quantity::kPlain;
  MetricGroup group = MetricGroup::kOther;
  bool is_shown_constant = false;  ///< true if it is drawn even when constant
};

/// Label, quantity and group of a key of metrics.jsonl, experts.jsonl, gates.jsonl or
/// permutations.jsonl. An unknown key becomes its own label, without underscores; its prefix
/// decides the group.
MetricInfo metric_info(std::string_view key);

/// A number as text: `0.6034`, `3e-05`, `12,345`, `8.2 %`, `1.21 GiB`.
std::string value_text(double value, Quantity quantity);

/// A step as text, `1,560`.
std::string step_text(double step);

}  // namespace shoal
