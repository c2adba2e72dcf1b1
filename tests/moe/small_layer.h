#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "moe/moe_layer.h"

namespace shoal::testing {

/// Path of the layers in tests of single ones.
inline constexpr const char* kPath = "blocks.1.moe_c";

/// A step of these samples, which are all there are.
inline StepContext step_of(int64_t num_samples, bool training, int64_t samples_per_group = 2) {
  StepContext step;
  step.seed = 3;
  step.step = 5;
  step.training = training;
  step.sample_b = torch::arange(num_samples);
  step.samples_per_group = samples_per_group;
  step.samples_in_step = step.samples_in_micro = num_samples;
  return step;
}

/// By its name below the layer's path; undefined if there is none.
inline torch::Tensor parameter_of(const MoeLayer& layer, const std::string& name) {
  for (const Parameter& parameter : parameters_of(layer, kPath)) {
    if (parameter.name == kPath + ("." + name)) return parameter.tensor;
  }
  return {};
}

}  // namespace shoal::testing
