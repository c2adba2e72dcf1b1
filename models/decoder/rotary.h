#pragma once

#include <torch/types.h>

#include <cstdint>

// B sequences  N heads  S tokens  H head width
namespace shoal {

/// Cosines and sines of the angles by which the H / 2 pairs of numbers of a head are turned,
/// [S, H / 2] or [B, 1, S, H / 2]; undefined: nothing is turned.
struct Rotation {
  torch::Tensor cos, sin;
};

/// Rotary position embedding: the token at position p turns pair i by p * base^(-2 i / H).
/// `position`: int64 [S] or [B, 1, S]. Angles are float32, float64 where `dtype` is.
/// Source: Su et al. 2021 (RoFormer), equation 15.
Rotation rotation_at(const torch::Tensor& position, int64_t head_width, double base,
                     torch::Dtype dtype);

/// [B, N, S, H] -> the same, contiguous. Pair i is (x[i], x[i + H / 2]), the halves of GPT-NeoX and
/// of Hugging Face's Llama, not RoFormer's neighbours (x[2 i], x[2 i + 1]). Differentiable in x;
/// bfloat16 is computed in float32.
torch::Tensor rotate(const torch::Tensor& x_BNSH, const Rotation& rotation);

}  // namespace shoal
