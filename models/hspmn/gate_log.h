#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/hspmn/token_gate.h"
#include "runtime/records/layer_log.h"

namespace shoal {

/// Metrics of token gates in one step; empty without gates. A gate selects the tokens that attend.
/// Means over layers: `gate_rate`, the share of tokens that attended; `gate_probability`, the mean
/// of sigma(logit); `gate_entropy`, in nats; `gate_dropped`, the share of tokens with an open gate
/// beyond the capacity. Anchors, which always attend, are left out, but counted in an evaluation's
/// `gate_rate`. `gate_dead`: number of layers in which only anchors attended.
LayerLog::Report report_of(const std::vector<GateReport>& gates, int64_t step);

/// Log of token gates. A skipped step is not logged, as gates still hold an earlier step's numbers.
class GateLog : public LayerLog {
 public:
  explicit GateLog(std::vector<TokenGate> gates) : gates_(std::move(gates)) {}
  std::string file() const override { return "gates.jsonl"; }
  Report report(int64_t step, bool applied) const override;

 private:
  std::vector<TokenGate> gates_;
};

}  // namespace shoal
