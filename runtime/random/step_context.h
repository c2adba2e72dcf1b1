#pragma once

#include <torch/types.h>

#include <cstdint>

namespace shoal {

/// Where a forward pass stands in the run: keys of all noise, and the scale of losses.
/// Tensors are where the model is. b = samples on this rank in this micro-step, in stream order,
/// whole routing groups but for the last group of an evaluation, which may be short.
struct StepContext {
  uint64_t seed = 0;
  int64_t step = 0;               ///< optimizer step, from 0
  bool training = false;          ///< noise and capacity act only while training
  torch::Tensor sample_b;         ///< int64 [b], position in the data stream, global
  torch::Tensor view_b;           ///< int64 [b], augmentation view, or undefined for view 0
  int64_t samples_per_group = 8;  ///< recipe key train.group
  int64_t samples_in_step = 0;    ///< over all ranks and micro-steps of this optimizer step
  int64_t samples_in_micro = 0;   ///< over all ranks of this micro-step
};

}  // namespace shoal
