#pragma once

#include <optional>
#include <vector>

#include "moe/moe_stats.h"
#include "runtime/records/metrics.h"

namespace shoal {

/// Adds metrics of all MoE layers in one step, the same keys for any number of layers and units;
/// nothing without layers. Over all units of all layers, a unit's load relative to its layer's
/// mean: `moe_load_p50` and `moe_load_p95` (interpolated linearly), `moe_load_max`, and
/// `moe_dead_units`, the number that no token chose. Means over layers: `moe_load_entropy`,
/// `moe_router_entropy`, `moe_dropped`, for layers with scores `moe_mutual_information`, and for
/// each balance loss `moe_loss_<name>`, undivided. Summed over the layers that count them:
/// `moe_multiply_adds` per token.
void add_moe_metrics(const std::vector<MoeReport>& layers, MetricsRecord& record);

/// MoeReport::mutual_information, averaged over the layers that have one.
std::optional<double> mean_mutual_information(const std::vector<MoeReport>& layers);

/// The value below which this share of the values lies, by linear interpolation; 0 for none.
double percentile(std::vector<double> values, double share);

}  // namespace shoal
