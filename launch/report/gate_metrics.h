#pragma once

#include <cstdint>
#include <vector>

#include "models/hspmn/token_gate.h"
#include "runtime/records/metrics.h"

namespace shoal {

/// Adds metrics of all token gates in one step, as means over layers; none without gates:
/// `gate_rate`, the share of tokens that attended, excluding anchors (an evaluation's `gate_rate`
/// includes them, see GateScores); `gate_probability`, `gate_entropy` (nats), `gate_dropped`; and
/// `gate_dead`, the number of layers in which only anchors attended.
void add_gate_metrics(const std::vector<GateReport>& gates, MetricsRecord& record);

/// Record for a line of gates.jsonl: one gate in one step.
MetricsRecord gate_record(const GateReport& gate, int64_t step);

/// Mean over layers of the share of tokens that attended, excluding anchors.
double mean_gate_rate(const std::vector<GateReport>& gates);

}  // namespace shoal
