#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "runtime/random/step_context.h"

// b samples on this rank  R rows per sample  T tokens on this rank  U units (all ranks)
// K choices per token  G routing groups on this rank
namespace shoal {

/// Where this rank's tokens stand in samples, routing groups and the run. A token is a row of a MoE
/// layer's input that is not padding. A routing group is a fixed number of samples (recipe key
/// train.group); routers and capacity compare tokens only inside it.
struct TokenContext {
  const StepContext& step;              ///< the forward pass; step.step is the optimizer step
  uint64_t layer = 0;                   ///< key of the layer's noise: the hash of its module path
  int64_t rows_per_sample = 0;          ///< R, padding included
  std::vector<int64_t> sample_offsets;  ///< [b + 1], first token of each sample, then T
  std::vector<int64_t> group_offsets;   ///< [G + 1], first token of each routing group, then T
  torch::Tensor row_T = {};  ///< int64: the tokens among all b R rows; undefined: all are tokens

  int64_t num_samples() const { return static_cast<int64_t>(sample_offsets.size()) - 1; }
  int64_t num_tokens() const { return sample_offsets.back(); }
  /// Returns a sample's number of items, over which balance losses are averaged. Items are tokens,
  /// or samples if samples differ in length (returns 1).
  int64_t items_per_sample() const { return step.length_b.defined() ? 1 : rows_per_sample; }
  /// Removes padding: [b R, ...] -> [T, ...], differentiable.
  torch::Tensor take_tokens(const torch::Tensor& rows) const {
    return row_T.defined() ? rows.index_select(0, row_T) : rows;
  }
  /// Inverts take_tokens, with zeros for padding: [T, D] -> [b R, D], differentiable.
  torch::Tensor put_back(const torch::Tensor& x_TD) const;
};

/// Makes the context of this rank's samples. Routing groups are runs of step.samples_per_group
/// samples, the last may be shorter. TORCH_CHECK unless lengths are from 0 to R.
TokenContext make_token_context(const StepContext& step, uint64_t layer, int64_t rows_per_sample);

/// Returns int64 [T]: global id of each token in the run, independent of ranks. Keys noise.
inline torch::Tensor token_ids(const TokenContext& context) {
  return context.take_tokens(row_ids(context.step, context.rows_per_sample));
}

/// A router's output, before capacity limits the rows of a unit (expert or memory unit). Balance
/// losses read it, and apply_capacity, which drops choices and returns the final combine weights. A
/// selection bias affects the choices, not their weights.
struct Routing {
  int64_t num_units = 0;
  torch::Tensor unit_TK;  ///< int64: unit of each choice, best first; -1: token masked, not sent
  /// int64: unit_TK before masking, for balance losses; -1 if fewer than K units chose the token.
  torch::Tensor choice_TK;
  torch::Tensor weight_TK;  ///< combine weights before renorm_after_drop and weight_scale
  torch::Tensor score_TK;   ///< scores of choices without bias, detached; capacity may sort by them
  /// The token's importance: its highest score without bias over all units that it may be routed
  /// to, detached; if undefined, over its choices. Drops and batch priority use it.
  torch::Tensor priority_T;
  torch::Tensor logits_TU;  ///< without noise, differentiable; undefined without scores
  torch::Tensor noisy_TU;   ///< with this step's noise, differentiable; logits_TU without noise
  /// Scores without noise, differentiable; rows sum to 1 or underflow to 0. May be undefined.
  torch::Tensor prob_TU;
  double noise_std = 0.0;      ///< standard deviation of the noise; 0: none, or learned
  torch::Tensor count_U;       ///< int64: choices of each unit in choice_TK; may be undefined
  torch::Tensor noise_std_TU;  ///< standard deviation of learned noise, differentiable
  std::vector<int64_t> group_offsets;  ///< [G + 1], first token of each routing group, then T
  bool renorm_after_drop = false;      ///< apply_capacity divides surviving weights by their sum
  double weight_scale = 1.0;           ///< apply_capacity multiplies all weights by it, last

  int64_t num_tokens() const { return unit_TK.size(0); }
  int64_t choices_per_token() const { return unit_TK.size(1); }
  bool has_noise() const { return noise_std > 0 || noise_std_TU.defined(); }
};

}  // namespace shoal
