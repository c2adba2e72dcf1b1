#pragma once

#include <optional>
#include <vector>

#include "moe/moe_stats.h"
#include "runtime/records/metrics.h"

namespace shoal {

/// Adds metrics of all MoE layers in a step; without layers none. A unit is an expert or a memory
/// unit; its load is the number of tokens that chose it, or, with soft routing, the sum of their
/// weights. Over all units of all layers, loads divided by their layer's mean: `moe_load_p50` and
/// `moe_load_p95` (percentiles), `moe_load_max`, and `moe_dead_units`, the number with load 0.
/// Means over layers, of the step's tokens on all ranks: `moe_load_entropy` and
/// `moe_router_entropy` (of the shares of the load and of a token's scores, 1 = even),
/// `moe_dropped` (share of choices), `moe_mutual_information` (between a token and its unit) if a
/// router has scores, and `moe_loss_<name>` for each balance loss, before its weight. Sum over
/// layers that count it: `moe_multiply_adds` of the units, per token.
void add_moe_metrics(const std::vector<MoeReport>& layers, MetricsRecord& record);

/// Returns the mean mutual_information of the layers that have it; nullopt if none has.
std::optional<double> mean_mutual_information(const std::vector<MoeReport>& layers);

/// Returns a percentile by linear interpolation; `share` 0.5: the median. 0 without values.
double percentile(std::vector<double> values, double share);

}  // namespace shoal
