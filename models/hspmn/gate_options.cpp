#include "models/hspmn/gate_options.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/base/error.h"

namespace shoal {
namespace {

/// Number of tokens in a context that may attend. Products such as 1.1 x 0.1 x 100 are rounded
/// slightly above the exact integer.
int64_t capacity_of(double capacity, double rate, int64_t context) {
  return static_cast<int64_t>(std::ceil(capacity * rate * static_cast<double>(context) - 1e-9));
}

}  // namespace

void GateOptions::validate(Problems& problems) const {
  if (first_rate < rate) {
    problems.add("first_rate", fmt::format("{} is below gate.rate: {}", first_rate, rate));
  }
  if (capacity && select != GateSelection::kThreshold) {
    problems.add("capacity",
                 "limits how many tokens a threshold lets attend; needs select: threshold");
  }
}

double GateOptions::rate_at(int64_t step) const {
  if (step >= anneal_steps) return rate;
  return first_rate +
         (rate - first_rate) * static_cast<double>(step) / static_cast<double>(anneal_steps);
}

void GateOptions::check_context(int64_t context) const {
  if (!capacity) return;
  const int64_t most = capacity_of(*capacity, rate, context), anchors = anchors_in(context);
  if (most >= anchors) return;
  throw ConfigError(
      fmt::format("model.gate.capacity: {} of {} tokens may attend, but one every {} is an anchor, "
                  "{} in all; raise capacity or anchor_every",
                  most, context, anchor_every, anchors));
}

std::optional<int64_t> GateOptions::most_in(int64_t context, double at_rate) const {
  if (!capacity) return std::nullopt;
  return capacity_of(*capacity, at_rate, context) - anchors_in(context);
}

}  // namespace shoal
