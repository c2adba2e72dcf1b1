#pragma once

#include <vector>

#include "moe/moe_stats.h"
#include "runtime/base/metrics.h"

namespace shoal {

/// Adds what all MoE layers did in one step, in as many keys whatever the number of layers and
/// units; nothing without layers. Over all units of all layers, a unit's load over its layer's
/// mean: `moe_load_p50` and `moe_load_p95` (interpolated linearly), `moe_load_max`, and
/// `moe_dead_units`, how many no token chose. Means over layers: `moe_load_entropy`,
/// `moe_router_entropy`, `moe_dropped`, and for each balance loss `moe_loss_<name>`, undivided.
void add_moe_metrics(const std::vector<MoeReport>& layers, MetricsRecord& record);

/// The value below which this share of the values lies, by linear interpolation; 0 of none.
double percentile(std::vector<double> values, double share);

}  // namespace shoal
