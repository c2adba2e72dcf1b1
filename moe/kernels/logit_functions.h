#pragma once

#include <torch/types.h>

// R rows  C columns
namespace shoal {

/// Functions of a router's logits, float32 or float64.
///
/// Sigmoid and softplus of each element, and the logarithm of a row's summed exponentials: equal
/// logits give equal bits on every layout: at any place in a tensor of any size, on any number of
/// threads and ranks. (LibTorch's have other last bits in the vectors of a loop than after them,
/// and sum columns in an order that depends on their number: ties between units would then depend
/// on the layout.) Computed in float64 and rounded once.

/// Differentiable.
torch::Tensor logit_sigmoid(const torch::Tensor& logits);
/// Differentiable. The logit itself above 20, as LibTorch's; not below exp(-708).
torch::Tensor logit_softplus(const torch::Tensor& logits);

/// [R, C] -> [R], without gradient; summed in an order that depends on C alone. C >= 1.
torch::Tensor row_logsumexp(const torch::Tensor& x_RC);

/// Softmax of each row, differentiable: made for many short rows, where the general one spends its
/// time on loops. Within a few roundings of its dtype, but that float32 scores end at e^-87 of the
/// highest. A row with a NaN or an infinity becomes NaN. C >= 1.
torch::Tensor row_softmax(const torch::Tensor& logits_RC);

}  // namespace shoal
