#include "launch/report/known_metrics.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>

#include "launch/job/console.h"

namespace shoal {
namespace {

struct Known {
  const char *key, *label;
  Quantity quantity = Quantity::kPlain;
  MetricGroup group = MetricGroup::kOther;
  bool is_shown_constant = false;
};

std::span<const Known> known_metrics() {
  using enum Quantity;
  using enum MetricGroup;
  static constexpr std::array kKnown{
      Known{"loss", "loss", kPlain, kTraining, true},
      Known{"lr", "learning rate", kPlain, kTraining, true},
      Known{"grad_norm", "gradient norm before clipping", kPlain, kTraining, true},
      Known{"samples_per_second", "samples per second, all ranks", kPlain, kSpeed, true},
      Known{"mfu", "model FLOPs utilisation (MFU)", kShare, kSpeed, true},
      Known{"data_wait", "time spent waiting for data", kShare, kSpeed, true},
      Known{"all_to_all_share", "time spent waiting for all-to-alls", kShare, kSpeed, true},
      Known{"all_to_all_ms", "waiting for all-to-alls, ms per step", kPlain, kSpeed, true},
      Known{"memory_bytes", "resident memory of rank 0", kBytes, kSpeed, true},
      Known{"moe_load_p50", "load over the layer's mean, median", kPlain, kExperts},
      Known{"moe_load_p95", "load over the layer's mean, 95th percentile", kPlain, kExperts},
      Known{"moe_load_max", "load over the layer's mean, largest", kPlain, kExperts},
      Known{"moe_dead_units", "units that no token chose", kPlain, kExperts},
      Known{"moe_load_entropy", "entropy of the load, 1 = even", kPlain, kExperts},
      Known{"moe_router_entropy", "router entropy, 1 = undecided", kPlain, kExperts},
      Known{"moe_dropped", "dropped choices", kShare, kExperts},
      Known{"moe_mutual_information", "I(token; unit), nats", kPlain, kExperts},
      Known{"moe_multiply_adds", "multiply-adds per token, all MoE layers", kPlain, kExperts},
      Known{"load_cv", "load: standard deviation over mean"},
      Known{"load_entropy", "entropy of the load, 1 = even"},
      Known{"router_entropy", "router entropy, 1 = undecided"},
      Known{"mutual_information", "I(token; unit), nats"},
      Known{"dead_experts", "units that no token chose"},
      Known{"dropped", "dropped choices", kShare},
      Known{"unrouted", "tokens routed to no unit", kShare},
      Known{"gate_rate", "tokens that attend, mean of the gates", kShare, kGates, true},
      Known{"gate_probability", "gate probability, mean of the gates", kPlain, kGates},
      Known{"gate_entropy", "gate entropy, mean of the gates", kPlain, kGates},
      Known{"gate_dropped", "tokens beyond the gates' capacity", kShare, kGates},
      Known{"gate_dead", "gates that no token opened", kPlain, kGates},
      Known{"rate", "tokens that attend", kShare},
      Known{"permutation_soft", "permutations that are soft", kPlain, kSparsity},
      Known{"permutation_distance", "distance from the identity, mean of the permutations", kPlain,
            kSparsity},
      Known{"permutation_penalty", "penalty, mean of the permutations", kPlain, kSparsity},
      Known{"distance", "distance from the identity"},
      Known{"router_agreement", "first unit as in the evaluation before", kShare},
      Known{"top1", "top-1"},
      Known{"top5", "top-5"},
  };
  return kKnown;
}

MetricGroup group_by_beginning(std::string_view key) {
  using enum MetricGroup;
  if (key.starts_with("moe_")) return kExperts;
  if (key.starts_with("gate_")) return kGates;
  if (key.starts_with("permutation_") || key.starts_with("cells_") ||
      key.starts_with("sparsity_") || key.starts_with("density")) {
    return kSparsity;
  }
  return kOther;
}

/// Formats with thousands separators, 1234567.5 as `1,234,568`.
std::string grouped_text(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  const size_t begin = digits.starts_with('-') ? 1 : 0;
  for (size_t at = digits.size(); at > begin + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string plain_text(double value) {
  const double size = std::abs(value);
  if (value == 0.0) return "0";
  if (size >= 1e9) return fmt::format("{:.3e}", value);
  if (size >= 1e3) return grouped_text(value);
  if (size < 1e-3) return fmt::format("{:.3g}", value);
  return fmt::format("{:.4g}", value);
}

}  // namespace

MetricInfo metric_info(std::string_view key) {
  for (const Known& known : known_metrics()) {
    if (key == known.key) {
      return {known.label, known.quantity, known.group, known.is_shown_constant};
    }
  }
  MetricInfo info{std::string(key), Quantity::kPlain, group_by_beginning(key), false};
  for (const std::string_view beginning : {"moe_loss_", "loss_"}) {
    if (key.starts_with(beginning)) {
      info.label = "balance loss: " + info.label.substr(beginning.size());
      break;
    }
  }
  for (char& c : info.label) {
    if (c == '_') c = ' ';
  }
  return info;
}

std::string value_text(double value, Quantity quantity) {
  if (quantity == Quantity::kBytes) return human_bytes(value);
  if (quantity == Quantity::kShare && value == 0) return "0 %";
  if (quantity == Quantity::kShare)
    return fmt::format("{:.{}f} %", 100 * value, value < 0.1 ? 2 : 1);
  return plain_text(value);
}

std::string step_text(double step) { return grouped_text(step); }

}  // namespace shoal
