#pragma once

#include <torch/types.h>

// R rows  C columns
namespace shoal {

/// Sigmoid and softplus of each element, and the logarithm of a row's summed exponentials. Equal
/// logits give equal bits on every layout: at any place in a tensor of any size, on any number of
/// threads and ranks. (LibTorch's have other last bits in the vectors of a loop than after them,
/// and sum columns in an order that depends on their number: ties between units would then depend
/// on the layout.) float32 or float64, computed in float64 and rounded once.

/// Differentiable.
torch::Tensor logit_sigmoid(const torch::Tensor& logits);
/// Differentiable. The logit itself above 20, as LibTorch's; not below exp(-708).
torch::Tensor logit_softplus(const torch::Tensor& logits);

/// [R, C] -> [R], without gradient; summed in an order that depends on C alone. C >= 1.
torch::Tensor row_logsumexp(const torch::Tensor& x_RC);

}  // namespace shoal
