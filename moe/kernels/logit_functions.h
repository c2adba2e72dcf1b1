#pragma once

#include <torch/types.h>

// R rows  C columns
namespace shoal {

/// Functions of a router's logits, float32 or float64.
///
/// Sigmoid and softplus of each element, and the logarithm of a row's summed exponentials. Equal
/// logits give bitwise equal results at any place in a tensor of any size, on any number of threads
/// and ranks. (LibTorch's last bits differ between a vector loop and its remainder, and its sums
/// depend on the number of columns: ties between units would then depend on the rank layout.)
/// Computed in float64 and rounded once.

/// Differentiable.
torch::Tensor logit_sigmoid(const torch::Tensor& logits);
/// Differentiable. Returns the logit itself above 20, like LibTorch, and at least exp(-708).
torch::Tensor logit_softplus(const torch::Tensor& logits);

/// [R, C] -> [R], without gradient; summed in an order that depends only on C. C >= 1.
torch::Tensor row_logsumexp(const torch::Tensor& x_RC);

/// Softmax of each row, differentiable; fast for many short rows, where LibTorch's spends its time
/// on loop overhead. Accurate to a few roundings, except that float32 scores are clamped at e^-87
/// of the highest. A row with a NaN or an infinity becomes NaN. C >= 1.
torch::Tensor row_softmax(const torch::Tensor& logits_RC);

}  // namespace shoal
