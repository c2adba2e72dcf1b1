#pragma once

#include <torch/types.h>

#include <cstdint>

// b samples on this rank  R rows of a sample
namespace shoal {

/// The place of a forward pass in the run: keys of all noise, and the scale of losses.
/// Tensors are where the model is. b = samples on this rank in this micro-step, in stream order,
/// whole routing groups but for the last group of an evaluation, which may be short.
struct StepContext {
  uint64_t seed = 0;
  int64_t step = 0;               ///< optimizer step, from 0
  bool training = false;          ///< noise and capacity act only while training
  torch::Tensor sample_b;         ///< int64 [b], position in the data stream, global
  torch::Tensor view_b;           ///< int64 [b], augmentation view, or undefined for view 0
  torch::Tensor token_bS;         ///< int64 [b, S], vocabulary ids; undefined without tokens
  torch::Tensor position_bS;      ///< int64 [b, S], in their text; undefined: 0, 1, 2, ...
  int64_t samples_per_group = 8;  ///< recipe key train.group
  int64_t samples_in_step = 0;    ///< over all ranks and micro-steps of this optimizer step
  int64_t samples_in_micro = 0;   ///< over all ranks of this micro-step
};

/// The context of the samples [first, first + count) of a micro-batch; samples_in_… remain those of
/// the whole.
inline StepContext narrow_samples(const StepContext& step, int64_t first, int64_t count) {
  StepContext part = step;
  for (torch::Tensor StepContext::*tensor : {&StepContext::sample_b, &StepContext::view_b,
                                             &StepContext::token_bS, &StepContext::position_bS}) {
    if ((step.*tensor).defined()) part.*tensor = (step.*tensor).narrow(0, first, count);
  }
  return part;
}

/// int64 [b R]: which row this is in the whole run, whatever the rank: the sample's view in the top
/// byte, below it its position in the stream times R plus the row. Keys what is drawn for the row.
inline torch::Tensor row_ids(const StepContext& step, int64_t rows_per_sample) {
  constexpr int kViewShift = 56;
  torch::Tensor first_b = step.sample_b * rows_per_sample;
  if (step.view_b.defined()) {
    first_b = first_b.bitwise_or(step.view_b.bitwise_left_shift(kViewShift));
  }
  const torch::Tensor row_R = torch::arange(rows_per_sample, first_b.options());
  return (first_b.unsqueeze(1) + row_R).flatten();
}

}  // namespace shoal
