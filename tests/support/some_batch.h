#pragma once

#include <torch/types.h>

#include <string>
#include <string_view>

#include "models/task.h"
#include "runtime/data/data_shape.h"
#include "tests/support/gradient_check.h"

namespace shoal::testing {

/// These images, one view each, and labels.
inline Batch image_batch(const torch::Tensor& image_bCHW, const torch::Tensor& label_b) {
  Batch batch;
  batch.image_bVCHW = image_bCHW.unsqueeze(1);
  batch.label_b = label_b;
  return batch;
}

/// The batch as a part of this step.
inline Batch in_step(Batch batch, const StepContext& step) {
  batch.context = step;
  return batch;
}

/// Some images, labelled 0, 1, 2, 0, ...
inline Batch some_batch(int64_t images, const ImageShape& shape) {
  return image_batch(some_numbers({images, shape.channels, shape.height, shape.width}, 1),
                     torch::arange(images, torch::kInt64).remainder(3));
}

/// Sum of an evaluation's output by its name.
inline double sum_of(const EvalOutput& output, std::string_view name) {
  for (const NamedSum& sum : output.sums) {
    if (sum.name == name) return sum.sum;
  }
  TORCH_CHECK(false, "no sum of this name: ", std::string(name));
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
