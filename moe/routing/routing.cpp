#include "moe/routing/routing.h"

#include <algorithm>

namespace shoal {

TokenContext make_token_context(const StepContext& step, uint64_t layer,
                                int64_t tokens_per_sample) {
  TORCH_CHECK(step.samples_per_group >= 1, "samples_per_group must be positive, got ",
              step.samples_per_group);
  TokenContext context{step, layer, tokens_per_sample, {0}};
  const int64_t num_samples = step.sample_b.size(0);
  for (int64_t sample = 0; sample < num_samples;) {
    sample = std::min(num_samples, sample + step.samples_per_group);
    context.group_offsets.push_back(sample * tokens_per_sample);
  }
  return context;
}

torch::Tensor token_ids(const TokenContext& context) {
  return row_ids(context.step, context.tokens_per_sample);
}

}  // namespace shoal
