#pragma once

#include <torch/types.h>

// R rows  C columns
namespace shoal {

// Functions of a MoE router's logits, float32 or float64: sigmoid and softplus of each element,
// log-sum-exp and softmax of each row. They replace LibTorch's functions: equal logits must give
// bitwise equal results at any place in a tensor of any size: LibTorch's last bits differ between a
// vector loop and its remainder, and ties between experts would then depend on the number of ranks.
// All but row_softmax are computed in float64 and rounded once.

/// Sigmoid of each element, differentiable.
torch::Tensor logit_sigmoid(const torch::Tensor& logits);
/// Softplus of each element, differentiable: x if x > 20, as in LibTorch; never below e^-708.
torch::Tensor logit_softplus(const torch::Tensor& logits);

/// Log-sum-exp of each row, without gradient: [R, C] -> [R]; the order of sums depends only on C.
torch::Tensor row_logsumexp(const torch::Tensor& x_RC);

/// Softmax of each row, differentiable, accurate to a few roundings. A float32 score is never below
/// e^-87 times the highest score of its row. NaN and infinity give NaN.
torch::Tensor row_softmax(const torch::Tensor& logits_RC);

}  // namespace shoal
