#pragma once

#include <cstdint>
#include <vector>

#include "models/hspmn/token_gate.h"
#include "runtime/records/metrics.h"

namespace shoal {

/// Adds metrics of all token gates in one step; nothing without gates. Means over layers:
/// `gate_rate`, the share of the tokens beside the anchors that attended (an evaluation's
/// `gate_rate` counts the anchors too, see GateScores), `gate_probability`, `gate_entropy` (nats),
/// `gate_dropped`; `gate_dead`: number of layers in which only anchors attended.
void add_gate_metrics(const std::vector<GateReport>& gates, MetricsRecord& record);

/// Record for a line of gates.jsonl: one gate in one step.
MetricsRecord gate_record(const GateReport& gate, int64_t step);

/// Mean over layers of the share of the tokens beside the anchors that attended.
double mean_gate_rate(const std::vector<GateReport>& gates);

}  // namespace shoal
