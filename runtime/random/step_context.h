#pragma once

#include <torch/types.h>

#include <cstdint>

// b samples on this rank  S tokens of a sample, with padding  R rows of a sample
namespace shoal {

/// What layers need beside activations: keys for noise, and counts that losses are divided by.
/// Tensors are on the model's device. The b samples are this rank's in a micro-step, in stream
/// order. They form whole routing groups (samples whose tokens compete for expert capacity); only
/// an evaluation's last group may be short. Rows behind a sample's tokens are ignored padding.
struct StepContext {
  uint64_t seed = 0;
  int64_t step = 0;           ///< optimizer step, from 0
  bool training = false;      ///< noise and capacity apply only while training
  torch::Tensor sample_b;     ///< int64 [b], position in the data stream, global
  torch::Tensor view_b;       ///< int64 [b], augmentation view, or undefined for view 0
  torch::Tensor token_bS;     ///< int64 [b, S], vocabulary ids; undefined if inputs are not ids
  torch::Tensor position_bS;  ///< int64 [b, S], position in the text; undefined: 0, 1, 2, ...
  torch::Tensor length_b;     ///< int64 [b], on the host: tokens of a sample; undefined: S for all
  int64_t samples_per_group = 8;  ///< size of a routing group: recipe key train.group
  int64_t samples_in_step = 0;    ///< over all ranks and micro-steps of this optimizer step
  int64_t samples_in_micro = 0;   ///< over all ranks of this micro-step
};

/// The context of the samples [first, first + count) alone; samples_in_step and samples_in_micro
/// still count the whole batch.
inline StepContext narrow_samples(const StepContext& step, int64_t first, int64_t count) {
  StepContext part = step;
  for (torch::Tensor StepContext::*tensor :
       {&StepContext::sample_b, &StepContext::view_b, &StepContext::token_bS,
        &StepContext::position_bS, &StepContext::length_b}) {
    if ((step.*tensor).defined()) part.*tensor = (step.*tensor).narrow(0, first, count);
  }
  return part;
}

/// bool [b, S]: true for the rows of each sample that are tokens; undefined without lengths.
inline torch::Tensor token_mask(const StepContext& step, int64_t S) {
  if (!step.length_b.defined()) return {};
  const torch::Tensor length_b = step.length_b.to(step.sample_b.device(), /*non_blocking=*/true);
  return torch::arange(S, length_b.options()) < length_b.unsqueeze(1);
}

/// Returns int64 [b R]: the global id of each row, which keys its random numbers, independent of
/// the rank. A sample has R = runs · S rows: its S tokens, repeated `runs` times, for example
/// once for each head. Row r of the sample at position p of the data stream has id p R + r, with
/// the view in the top byte. If `length_b` is defined, ids are computed as if S were 2^20, whatever
/// the padding.
inline torch::Tensor row_ids(const StepContext& step, int64_t S, int64_t runs = 1) {
  constexpr int kViewShift = 56;
  constexpr int64_t kMostRows = int64_t{1} << 20;
  const int64_t room = step.length_b.defined() ? kMostRows : S;
  torch::Tensor first_b = step.sample_b * (room * runs);
  if (step.view_b.defined()) {
    first_b = first_b.bitwise_or(step.view_b.bitwise_left_shift(kViewShift));
  }
  const torch::Tensor run_r = torch::arange(runs, first_b.options()) * room;
  const torch::Tensor row_S = torch::arange(S, first_b.options());
  return (first_b.view({-1, 1, 1}) + run_r.unsqueeze(1) + row_S).flatten();
}

}  // namespace shoal
