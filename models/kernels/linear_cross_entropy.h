#pragma once

#include <torch/types.h>

#include <cstdint>

// T tokens  D features  V vocabulary, padded
namespace shoal {

/// Fused output layer and loss: the sum over tokens of the cross entropy of logits x Wᵀ with
/// labels, a float32 scalar (float64 for float64 features). Tokens labelled kNoLabel are skipped.
/// Labels are below `vocabulary`; rows of W from there on are padding: probability and gradient 0.
///
/// Logits are computed in chunks of at most 2^24 elements (but at least 64 tokens), never as a
/// whole [T, V]. If gradients are needed, the forward pass computes them chunk by chunk and the
/// backward pass scales them. W is cast to x's dtype for products; softmax and the accumulation of
/// W's gradient are float32 or wider. On the CPU losses are summed in token order.
///
/// Shapes: x [T, D], weight [V, D], label int64 [T]. Differentiable; T may be 0.
/// Throws: TORCH_CHECK on shapes, and on the CPU on a label out of range.
/// Source: Hsu et al. 2024 (Liger Kernel), section 3.2, fused linear cross entropy.
torch::Tensor linear_cross_entropy(const torch::Tensor& x_TD, const torch::Tensor& weight_VD,
                                   const torch::Tensor& label_T, int64_t vocabulary);

}  // namespace shoal
