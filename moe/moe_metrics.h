#pragma once

#include <optional>
#include <vector>

#include "moe/moe_stats.h"
#include "runtime/records/metrics.h"

namespace shoal {

/// Adds metrics of all MoE layers in one step, under a fixed set of keys; none without layers. Over
/// all units of all layers, with loads relative to the layer's mean: `moe_load_p50` and
/// `moe_load_p95` (percentiles), `moe_load_max`, and `moe_dead_units`, the number of units without
/// tokens. Means over layers: `moe_load_entropy`, `moe_router_entropy`, `moe_dropped`, for routers
/// with scores `moe_mutual_information`, and `moe_loss_<name>` for each balance loss, before its
/// weight. Sum over the layers that count it: `moe_multiply_adds` per token.
void add_moe_metrics(const std::vector<MoeReport>& layers, MetricsRecord& record);

/// Mean of MoeReport::mutual_information over the layers that have it; nullopt if none has.
std::optional<double> mean_mutual_information(const std::vector<MoeReport>& layers);

/// Percentile by linear interpolation, `share` in [0, 1]; 0 without values.
double percentile(std::vector<double> values, double share);

}  // namespace shoal
