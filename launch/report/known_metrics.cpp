#include "launch/report/known_metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "runtime/base/text.h"

namespace shoal {
namespace {

const std::map<std::string_view, MetricInfo>& known_metrics() {
  using enum Quantity;
  using enum MetricGroup;
  static const std::map<std::string_view, MetricInfo> kKnown{
      {"loss", {"loss", kPlain, kTraining, true}},
      {"lr", {"learning rate", kPlain, kTraining, true}},
      {"grad_norm", {"gradient norm before clipping", kPlain, kTraining, true}},
      {"weight_norm", {"weight norm", kPlain, kOther, false, true}},
      {"gradient_norm", {"gradient norm, before clipping", kPlain, kOther, false, true}},
      {"update_norm", {"update norm", kPlain, kOther, false, true}},
      {"update_ratio", {"update norm over weight norm", kPlain, kOther, false, true}},
      {"samples_per_second", {"samples per second, all ranks", kPlain, kSpeed, true}},
      {"mfu", {"model FLOPs utilization (MFU)", kShare, kSpeed, true}},
      {"data_wait", {"time spent waiting for data", kShare, kSpeed, true}},
      {"all_to_all_share", {"time spent waiting for all-to-alls", kShare, kSpeed, true}},
      {"all_to_all_ms", {"waiting for all-to-alls, ms per step", kPlain, kSpeed, true}},
      {"memory_bytes", {"resident memory of rank 0", kBytes, kSpeed, true}},
      {"moe_load_p50", {"load relative to the layer's mean, median", kPlain, kExperts}},
      {"moe_load_p95", {"load relative to the layer's mean, 95th percentile", kPlain, kExperts}},
      {"moe_load_max", {"load relative to the layer's mean, largest", kPlain, kExperts}},
      {"moe_dead_units", {"dead units: chosen by no token", kPlain, kExperts}},
      {"moe_load_entropy", {"load entropy, 1 = balanced", kPlain, kExperts}},
      {"moe_router_entropy", {"router entropy, 1 = uniform", kPlain, kExperts}},
      {"moe_dropped", {"dropped choices", kShare, kExperts}},
      {"moe_mutual_information", {"mutual information of token and unit, nats", kPlain, kExperts}},
      {"moe_multiply_adds", {"multiply-adds per token, all MoE layers", kPlain, kExperts}},
      {"load_cv", {"coefficient of variation of the load"}},
      {"load_entropy", {"load entropy, 1 = balanced"}},
      {"router_entropy", {"router entropy, 1 = uniform"}},
      {"mutual_information", {"mutual information of token and unit, nats"}},
      {"dead_experts", {"dead units: chosen by no token"}},
      {"dropped", {"dropped choices", kShare}},
      {"unrouted", {"tokens routed to no unit", kShare}},
      {"gate_rate", {"tokens that attend, mean of the gates", kShare, kGates, true}},
      {"gate_probability", {"gate probability, mean of the gates", kPlain, kGates}},
      {"gate_entropy", {"gate entropy, mean of the gates", kPlain, kGates}},
      {"gate_dropped", {"tokens beyond the gates' capacity", kShare, kGates}},
      {"gate_dead", {"gates that no token opened", kPlain, kGates}},
      {"rate", {"tokens that attend", kShare}},
      {"permutation_soft", {"permutations that are soft", kPlain, kSparsity}},
      {"permutation_distance", {"mean distance from the identity", kPlain, kSparsity}},
      {"permutation_penalty", {"mean penalty of permutations", kPlain, kSparsity}},
      {"distance", {"distance from the identity"}},
      {"router_agreement", {"router agreement with the previous evaluation", kShare}},
      {"top1", {"top-1"}},
      {"top5", {"top-5"}},
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

std::string plain_text(double value) {
  const double size = std::abs(value);
  if (value == 0.0) return "0";
  if (size >= 1e9) return fmt::format("{:.3e}", value);
  if (size >= 1e3) return grouped(value);
  if (size < 1e-3) return fmt::format("{:.3g}", value);
  return fmt::format("{:.4g}", value);
}

}  // namespace

MetricInfo metric_info(std::string_view key) {
  const auto known = known_metrics().find(key);
  if (known != known_metrics().end()) return known->second;
  if (const size_t dot = key.find('.'); dot != key.npos) {  // of one of evaluate.sets
    MetricInfo of_set = metric_info(key.substr(dot + 1));
    of_set.label = fmt::format("{}, {}", of_set.label, key.substr(0, dot));
    return of_set;
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

}  // namespace shoal
