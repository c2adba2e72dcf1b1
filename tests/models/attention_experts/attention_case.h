#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "models/attention_experts/attention_experts.h"
#include "runtime/random/step_context.h"
#include "tests/moe/routing/make_routing.h"

namespace shoal::testing {

inline constexpr const char* kAttentionPath = "blocks.1.attention";

/// Three experts over images of 2 x 3 patches, two heads of two numbers: the two highest logits,
/// half the tokens, and a window.
inline AttentionExpertsOptions attention_options(Mixing mixing) {
  AttentionExpertsOptions options;
  KeyCandidates window;
  window.from = CandidateKind::kWindow;
  window.window = 3;
  options.experts = {{2, {}, {}}, {{}, 0.5, {}}, {{}, {}, window}};
  options.mixing = mixing;
  options.router = router_choice("{name: mlp, hidden: 8}");
  return options;
}
inline constexpr AttentionExperts::Sizes kAttentionSizes{4, 2, {2, 3}};

/// `count` of the micro-step's `all` images are this rank's.
inline StepContext attention_step(int64_t first, int64_t count, int64_t all, int64_t group = 2) {
  StepContext step;
  step.training = true;
  step.sample_b = torch::arange(first, first + count);
  step.samples_per_group = group;
  step.samples_in_step = step.samples_in_micro = all;
  return step;
}

}  // namespace shoal::testing
