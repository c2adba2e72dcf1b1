#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "runtime/random/step_context.h"

// b samples on this rank  R rows per sample  T tokens on this rank  U units (all ranks)
// K choices per token  G routing groups on this rank
namespace shoal {

/// Position of the tokens in samples, routing groups and the run. A token is a row of a MoE layer's
/// input that is not padding: padding is removed before routing.
struct TokenContext {
  const StepContext& step;              ///< the forward pass; step.step is the optimizer step
  uint64_t layer = 0;                   ///< key of the layer's noise: the hash of its path
  int64_t rows_per_sample = 0;          ///< R, padding included
  std::vector<int64_t> sample_offsets;  ///< [b + 1], first token of each sample
  std::vector<int64_t> group_offsets;   ///< [G + 1], first token of each group of whole samples
  torch::Tensor row_T = {};  ///< int64: the tokens among all b R rows; undefined: all are tokens

  int64_t num_samples() const { return static_cast<int64_t>(sample_offsets.size()) - 1; }
  int64_t num_tokens() const { return sample_offsets.back(); }
  /// Weight of a sample in balance losses: its number of tokens or, where samples differ in length
  /// and a step's tokens are unknown until it ends, 1.
  int64_t items_per_sample() const { return step.length_b.defined() ? 1 : rows_per_sample; }
  /// [b R, ...] -> [T, ...], differentiable.
  torch::Tensor take_tokens(const torch::Tensor& rows) const;
  /// [T, D] -> [b R, D], differentiable; zeros in place of padding.
  torch::Tensor put_back(const torch::Tensor& x_TD) const;
};

/// Context of this rank's samples: routing groups are runs of step.samples_per_group samples, the
/// last may be shorter. TORCH_CHECK unless lengths are from 0 to R.
TokenContext make_token_context(const StepContext& step, uint64_t layer, int64_t rows_per_sample);

/// int64 [T]: global id of each token in the run, independent of the rank. Keys the noise.
inline torch::Tensor token_ids(const TokenContext& context) {
  return context.take_tokens(row_ids(context.step, context.rows_per_sample));
}

/// A router's choices, before capacity. Losses and `apply_capacity` are functions of it.
struct Routing {
  int64_t num_units = 0;
  /// int64: the unit of each choice, best first; -1 if the token is masked (not to be sent).
  torch::Tensor unit_TK;
  /// int64: the choices of every token, masked ones included, for balance losses. -1: no choice,
  /// where units choose tokens and a token has fewer than K.
  torch::Tensor choice_TK;
  torch::Tensor weight_TK;  ///< combine weights, differentiable
  torch::Tensor score_TK;   ///< selection scores without bias, detached; order of capacity
  /// Highest score without bias over all units the token may be routed to, detached; undefined:
  /// over its choices. The token's importance, and its place in batch-priority order.
  torch::Tensor priority_T;
  torch::Tensor logits_TU;  ///< without noise, differentiable; undefined without scores
  torch::Tensor noisy_TU;   ///< with this step's noise, differentiable; logits_TU without noise
  /// Scores without noise, differentiable; each row sums to 1, or is all zero if its scores
  /// underflow. Undefined if the router has no scores.
  torch::Tensor prob_TU;
  double noise_std = 0.0;      ///< of noisy_TU - logits_TU; 0 without noise or with learned noise
  torch::Tensor count_U;       ///< int64: number of choices of each unit in choice_TK, if counted
  torch::Tensor noise_std_TU;  ///< learned noise: standard deviation, differentiable
  std::vector<int64_t> group_offsets;  ///< [G + 1], first token of each group
  bool renorm_after_drop = false;      ///< a token's surviving weights are divided by their sum
  double weight_scale = 1.0;           ///< factor applied last to all weights

  int64_t num_tokens() const { return unit_TK.size(0); }
  int64_t choices_per_token() const { return unit_TK.size(1); }
  bool has_noise() const { return noise_std > 0 || noise_std_TU.defined(); }
};

}  // namespace shoal
