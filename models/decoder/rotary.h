#pragma once

#include <torch/types.h>

#include <cstdint>

// B sequences  N heads  S tokens  H head width
namespace shoal {

/// Cosines and sines of rotation angles, [S, H / 2] or [B, 1, S, H / 2]; undefined: no rotation.
struct Rotation {
  torch::Tensor cos, sin;
};

/// Rotary position embedding: at position p, pair i is rotated by the angle p * base^(-2 i / H).
/// `position`: int64 [S] or [B, 1, S]. Angles are float32, or float64 if `dtype` is float64.
/// Source: Su et al. 2021 (RoFormer), equation 15.
Rotation rotation_at(const torch::Tensor& position, int64_t head_width, double base,
                     torch::Dtype dtype);

/// Applies a rotation: [B, N, S, H] -> [B, N, S, H], contiguous. Pair i is (x[i], x[i + H / 2]) as
/// in GPT-NeoX and Hugging Face's Llama, not RoFormer's (x[2 i], x[2 i + 1]). Differentiable in x;
/// bfloat16 is computed in float32.
torch::Tensor rotate(const torch::Tensor& x_BNSH, const Rotation& rotation);

}  // namespace shoal
