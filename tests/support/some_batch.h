#pragma once

#include <torch/types.h>

#include "models/task.h"
#include "runtime/data/image_shape.h"
#include "tests/support/gradient_check.h"

namespace shoal::testing {

/// Some images, labelled 0, 1, 2, 0, ...
inline TaskBatch some_batch(int64_t images, const ImageShape& shape) {
  return {some_numbers({images, shape.channels, shape.height, shape.width}, 1),
          torch::arange(images, torch::kInt64).remainder(3)};
}

/// A step of these samples on one rank, in routing groups of two.
inline StepContext some_step(int64_t samples, bool training) {
  StepContext step;
  step.seed = 5;
  step.training = training;
  step.sample_b = torch::arange(samples, torch::kInt64);
  step.samples_per_group = 2;
  step.samples_in_step = step.samples_in_micro = samples;
  return step;
}

}  // namespace shoal::testing
