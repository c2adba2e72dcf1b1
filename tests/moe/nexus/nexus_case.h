#pragma once

#include <torch/types.h>

#include <cstdint>

#include "moe/nexus/nexus_layer.h"
#include "runtime/random/step_context.h"

namespace shoal::testing {

inline constexpr const char* kNexusPath = "blocks.3.nexus";

/// Two slots a unit, seven hidden values, three of nine keys.
inline NexusOptions nexus_options(int64_t experts, int64_t memory, NexusVariant variant = {}) {
  NexusOptions options;
  options.experts.count = experts;
  options.experts.hidden = 7;
  options.memory = {memory, 9, 3};
  options.slots = 2;
  options.variant = variant;
  return options;
}

/// `count` of the micro-step's `all` images are this rank's.
inline StepContext nexus_step(int64_t first, int64_t count, int64_t all, int64_t group = 2) {
  StepContext step;
  step.training = true;
  step.sample_b = torch::arange(first, first + count);
  step.samples_per_group = group;
  step.samples_in_step = step.samples_in_micro = all;
  return step;
}

}  // namespace shoal::testing
