#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/hspmn/token_gate.h"
#include "runtime/records/layer_log.h"

namespace shoal {

/// Metrics of token gates, which select the tokens that attend, in one step; empty without gates.
/// Means over layers: `gate_rate`, the share of tokens that attended, `gate_probability`,
/// `gate_entropy` (nats), `gate_dropped`. Anchors, which always attend, are left out; an
/// evaluation's `gate_rate` counts them. `gate_dead`: number of layers in which only anchors
/// attended.
LayerLog::Report report_of(const std::vector<GateReport>& gates, int64_t step);

/// Log of token gates. A skipped step is not logged: gates then hold an earlier step's numbers.
class GateLog : public LayerLog {
 public:
  explicit GateLog(std::vector<TokenGate> gates) : gates_(std::move(gates)) {}
  std::string file() const override { return "gates.jsonl"; }
  Report report(int64_t step, bool applied) const override;

 private:
  std::vector<TokenGate> gates_;
};

}  // namespace shoal
