#pragma once

#include <torch/types.h>

// T tokens  U units
namespace shoal {

/// Softmax of each row, differentiable: made for many short rows, where the general one spends its
/// time on loops. float32 within a few roundings, float64 exact; a row with a NaN becomes NaN.
torch::Tensor row_softmax(const torch::Tensor& logits_TU);

}  // namespace shoal
