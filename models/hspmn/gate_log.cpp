#include "models/hspmn/gate_log.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal {
namespace {

double mean_of_gates(const std::vector<GateReport>& gates, double GateReport::*value) {
  double sum = 0.0;
  for (const GateReport& gate : gates) sum += gate.*value;
  return sum / static_cast<double>(gates.size());
}

}  // namespace

LayerLog::Report report_of(const std::vector<GateReport>& gates, int64_t step) {
  LayerLog::Report report;
  if (gates.empty()) return report;
  for (const GateReport& gate : gates) {
    MetricsRecord& record = report.records.emplace_back();
    record.add("step", step).add("layer", gate.layer);
    record.add("rate", gate.rate).add("target", gate.target);
    record.add("probability", gate.probability).add("entropy", gate.entropy);
    record.add("threshold", gate.threshold).add("dropped", gate.dropped);
    record.add("rate_by_position", gate.rate_by_position);
  }
  const double rate = mean_of_gates(gates, &GateReport::rate);
  report.means.add("gate_rate", rate);
  report.means.add("gate_probability", mean_of_gates(gates, &GateReport::probability));
  report.means.add("gate_entropy", mean_of_gates(gates, &GateReport::entropy));
  report.means.add("gate_dropped", mean_of_gates(gates, &GateReport::dropped));
  report.means.add("gate_dead",
                   static_cast<int64_t>(std::ranges::count(gates, 0.0, &GateReport::rate)));
  report.shown = fmt::format("attend {:.1f}%", 100 * rate);
  return report;
}

LayerLog::Report GateLog::report(int64_t step, bool applied) const {
  std::vector<GateReport> reports;
  for (const TokenGate& gate : gates_) {
    if (!applied) break;
    if (std::optional<GateReport> report = gate->report()) reports.push_back(std::move(*report));
  }
  return report_of(reports, step);
}

}  // namespace shoal
