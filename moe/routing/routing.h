#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/random/step_context.h"

// T tokens on this rank  U units (all ranks)  K choices per token  G routing groups on this rank
namespace shoal {

/// Where the tokens are: in samples, in routing groups, in the run. A token is one row of a MoE
/// layer's input; sample b has the rows [b * tokens_per_sample, (b + 1) * tokens_per_sample).
struct TokenContext {
  const StepContext& step;  ///< the forward pass; the number of the optimizer step is step.step
  uint64_t layer = 0;       ///< keys the layer's noise: the hash of its path
  int64_t tokens_per_sample = 0;
  std::vector<int64_t> group_offsets;  ///< [G + 1], in tokens, whole samples; the last may be short

  int64_t num_tokens() const { return group_offsets.back(); }
};

/// Context of this rank's samples: routing groups are runs of step.samples_per_group samples.
inline TokenContext make_token_context(const StepContext& step, uint64_t layer,
                                       int64_t tokens_per_sample) {
  const int64_t group = step.samples_per_group, num_samples = step.sample_b.size(0);
  TORCH_CHECK(group >= 1, "samples_per_group must be positive, got ", group);
  TokenContext context{step, layer, tokens_per_sample, {0}};
  for (int64_t sample = 0; sample < num_samples;) {
    sample = std::min(num_samples, sample + group);
    context.group_offsets.push_back(sample * tokens_per_sample);
  }
  return context;
}

/// int64 [T]: which token this is in the whole run, whatever the rank. Keys the noise.
inline torch::Tensor token_ids(const TokenContext& context) {
  return row_ids(context.step, context.tokens_per_sample);
}

/// A router's choices, before capacity. Losses and `apply_capacity` are functions of it.
struct Routing {
  int64_t num_units = 0;
  /// int64: the unit of each choice, best first; -1 where the token is masked (not to be sent).
  torch::Tensor unit_TK;
  /// int64: the choices of every token, masked ones included; what balance losses look at. -1 where
  /// there is no choice: units that choose tokens leave tokens with fewer than K.
  torch::Tensor choice_TK;
  torch::Tensor weight_TK;  ///< combine weights, differentiable
  torch::Tensor score_TK;   ///< selection scores without bias, detached; order of capacity
  /// The highest score without bias of all units that a token may be routed to, detached;
  /// undefined: that of its choices. A token's importance, and the order of batch priority.
  torch::Tensor priority_T;
  torch::Tensor logits_TU;  ///< clean, differentiable; undefined where no scores are made
  torch::Tensor noisy_TU;   ///< with this step's noise, differentiable; logits_TU without noise
  /// Clean scores, differentiable, each row sums to 1, or is all zero where its scores underflow;
  /// undefined where no scores are made.
  torch::Tensor prob_TU;
  double noise_std = 0.0;      ///< of noisy_TU - logits_TU; 0 without noise or if it is learned
  torch::Tensor count_U;       ///< int64: choices in choice_TK, where they have been counted
  torch::Tensor noise_std_TU;  ///< learned noise: its standard deviation, differentiable
  std::vector<int64_t> group_offsets;  ///< [G + 1], in tokens
  bool renorm_after_drop = false;      ///< a token's surviving weights are divided by their sum
  double weight_scale = 1.0;           ///< last of all, weights are multiplied by this

  int64_t num_tokens() const { return unit_TK.size(0); }
  int64_t choices_per_token() const { return unit_TK.size(1); }
  bool has_noise() const { return noise_std > 0 || noise_std_TU.defined(); }
};

}  // namespace shoal
