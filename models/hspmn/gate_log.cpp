#include "models/hspmn/gate_log.h"

#include <algorithm>

namespace shoal {
namespace {

double mean_of_gates(const std::vector<GateReport>& gates, double GateReport::*value) {
  double sum = 0.0;
  for (const GateReport& gate : gates) sum += gate.*value;
  return sum / static_cast<double>(gates.size());
}

}  // namespace

double mean_gate_rate(const std::vector<GateReport>& gates) {
  return mean_of_gates(gates, &GateReport::rate);
}

void add_gate_metrics(const std::vector<GateReport>& gates, MetricsRecord& record) {
  if (gates.empty()) return;
  record.add("gate_rate", mean_gate_rate(gates));
  record.add("gate_probability", mean_of_gates(gates, &GateReport::probability));
  record.add("gate_entropy", mean_of_gates(gates, &GateReport::entropy));
  record.add("gate_dropped", mean_of_gates(gates, &GateReport::dropped));
  record.add("gate_dead", static_cast<int64_t>(std::ranges::count(gates, 0.0, &GateReport::rate)));
}

MetricsRecord gate_record(const GateReport& gate, int64_t step) {
  MetricsRecord record;
  record.add("step", step).add("layer", gate.layer);
  record.add("rate", gate.rate).add("target", gate.target);
  record.add("probability", gate.probability).add("entropy", gate.entropy);
  record.add("threshold", gate.threshold).add("dropped", gate.dropped);
  record.add("rate_by_position", gate.rate_by_position);
  return record;
}

}  // namespace shoal
