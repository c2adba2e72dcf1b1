#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/hspmn/token_gate.h"
#include "runtime/records/layer_log.h"

namespace shoal {

/// Metrics of all token gates in one step; empty without gates. Means over layers: `gate_rate`, the
/// share of the tokens beside the anchors that attended (an evaluation's `gate_rate` counts the
/// anchors too, see GateScores), `gate_probability`, `gate_entropy` (nats), `gate_dropped`;
/// `gate_dead`: layers in which no token but anchors attended.
LayerLog::Report report_of(const std::vector<GateReport>& gates, int64_t step);

/// The log of these gates; in a skipped step they hold the numbers of an earlier one, and nothing
/// is logged.
class GateLog : public LayerLog {
 public:
  explicit GateLog(std::vector<TokenGate> gates) : gates_(std::move(gates)) {}
  std::string file() const override { return "gates.jsonl"; }
  Report report(int64_t step, bool applied) const override;

 private:
  std::vector<TokenGate> gates_;
};

}  // namespace shoal
