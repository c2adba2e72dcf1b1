#pragma once

#include <torch/types.h>

#include <cstdint>

// T tokens  D features  V vocabulary, padded
namespace shoal {

/// Sum over tokens of the cross entropy of logits x Wᵀ with the labels; a scalar, float32, or
/// float64 for float64 features. Tokens labelled kNoLabel are ignored. Labels are below
/// `vocabulary`; later rows of the weight are padding, with probability and gradient 0.
///
/// Logits are computed in chunks of tokens of 2^24 elements at most, but at least 64 tokens, never
/// [T, V] at once. If gradients are needed, the forward pass computes them chunk by chunk, and the
/// backward pass scales them. The weight is cast to x's dtype, in which products are computed;
/// softmax and the sum of the weight's gradient are float32 at least. On the CPU losses are summed
/// in the order of the tokens.
///
/// Shapes: x [T, D], weight [V, D], label int64 [T]. Differentiable; T may be 0.
/// Throws: TORCH_CHECK on shapes, and on the CPU on a label out of range.
/// Source: Hsu et al. 2024 (Liger Kernel), section 3.2, fused linear cross entropy.
torch::Tensor linear_cross_entropy(const torch::Tensor& x_TD, const torch::Tensor& weight_VD,
                                   const torch::Tensor& label_T, int64_t vocabulary);

}  // namespace shoal
