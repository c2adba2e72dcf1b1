#include "launch/step/step_outcome.h"

#include <utility>

namespace shoal {

StepReport reduce(const StepOutcome& outcome, Communicator& world) {
  ReducedStats sums = reduce(outcome.loss.reshape({1}), outcome.moe, world);
  return {sums.numbers.item<double>(), std::move(sums.layers), 1.0};
}

}  // namespace shoal
