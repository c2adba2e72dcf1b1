#pragma once

#include <torch/types.h>

#include <cstdint>

#include "runtime/random/step_context.h"

namespace shoal::testing {

/// A step of these samples, which are all there are.
inline StepContext step_of(int64_t num_samples, int64_t samples_per_group = 2,
                           bool training = true) {
  StepContext step;
  step.seed = 7;
  step.step = 11;
  step.training = training;
  step.sample_b = torch::arange(num_samples);
  step.samples_per_group = samples_per_group;
  step.samples_in_step = step.samples_in_micro = num_samples;
  return step;
}

}  // namespace shoal::testing
