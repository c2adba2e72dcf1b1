#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "runtime/random/step_context.h"

// b samples on this rank  R rows per sample  T tokens on this rank  U units (all ranks)
// K choices per token  G routing groups on this rank
namespace shoal {

/// Where the tokens are: in samples, in routing groups, in the run. A token is one row of a MoE
/// layer's input that is no padding: padding is taken out before a router sees it.
struct TokenContext {
  const StepContext& step;      ///< the forward pass; the number of the optimizer step is step.step
  uint64_t layer = 0;           ///< keys the layer's noise: the hash of its path
  int64_t rows_per_sample = 0;  ///< R, padding included
  std::vector<int64_t> sample_offsets;  ///< [b + 1], in tokens
  std::vector<int64_t> group_offsets;   ///< [G + 1], in tokens, whole samples
  torch::Tensor row_T = {};  ///< int64: the tokens among all b R rows; undefined: all are tokens

  int64_t num_samples() const { return static_cast<int64_t>(sample_offsets.size()) - 1; }
  int64_t num_tokens() const { return sample_offsets.back(); }
  /// Weight of a sample in balance losses: its tokens or, where samples differ in length and the
  /// tokens of a whole step are not known before it ends, 1.
  int64_t items_per_sample() const { return step.length_b.defined() ? 1 : rows_per_sample; }
  /// [b R, ...] -> [T, ...], differentiable.
  torch::Tensor take_tokens(const torch::Tensor& rows) const;
  /// [T, D] -> [b R, D], differentiable; zeros in place of padding.
  torch::Tensor put_back(const torch::Tensor& x_TD) const;
};

/// Context of this rank's samples: routing groups are runs of step.samples_per_group samples, the
/// last may be short. TORCH_CHECK unless lengths are from 0 to R.
TokenContext make_token_context(const StepContext& step, uint64_t layer, int64_t rows_per_sample);

/// int64 [T]: which token this is in the whole run, whatever the rank. Keys the noise.
inline torch::Tensor token_ids(const TokenContext& context) {
  return context.take_tokens(row_ids(context.step, context.rows_per_sample));
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
