#pragma once

#include <torch/types.h>

// T tokens  U units
namespace shoal {

/// Softmax of each row, differentiable: made for many short rows, where the general one spends its
/// time on loops. float32 or float64, within a few roundings of its dtype, but that float32 scores
/// end at e^-87 of the highest. A row with a NaN or an infinity becomes NaN.
torch::Tensor row_softmax(const torch::Tensor& logits_TU);

}  // namespace shoal
