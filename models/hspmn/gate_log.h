#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/hspmn/token_gate.h"
#include "runtime/records/layer_log.h"

namespace shoal {

/// Metrics of all token gates, which select the tokens that attend, in one step; empty without
/// gates. Means over layers: `gate_rate`, the share of tokens that attended, without anchors, which
/// always do (an evaluation's `gate_rate` counts them too), `gate_probability`, `gate_entropy`
/// (nats), `gate_dropped`; `gate_dead`: number of layers in which only anchors attended.
LayerLog::Report report_of(const std::vector<GateReport>& gates, int64_t step);

/// Log of these gates. Nothing is logged for a skipped step: they hold numbers of an earlier one.
class GateLog : public LayerLog {
 public:
  explicit GateLog(std::vector<TokenGate> gates) : gates_(std::move(gates)) {}
  std::string file() const override { return "gates.jsonl"; }
  Report report(int64_t step, bool applied) const override;

 private:
  std::vector<TokenGate> gates_;
};

}  // namespace shoal
