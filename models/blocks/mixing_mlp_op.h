#pragma once

#include <torch/types.h>

#include <cstdint>
#include <tuple>
#include <vector>

// B images  S tokens  C width  H hidden  N = B S rows
namespace shoal {

/// weights: norm weight, norm bias, fc1 weight, fc1 bias, fc2 weight, fc2 bias.
/// -> y, the norm's mean [N] and rstd [N], the activation after fc1 and its derivative, [B, H, C]
/// over tokens and [N, H] over channels; the last two are empty unless `keep`.
using MixingForward = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor,
                                 torch::Tensor>(const torch::Tensor& x, at::TensorList weights,
                                                bool over_tokens, int64_t activation, bool keep);

/// saved: x, mean, rstd, activation, derivative. -> gradients of x and of the weights.
using MixingBackward = std::vector<torch::Tensor>(const torch::Tensor& grad, at::TensorList saved,
                                                  at::TensorList weights, bool over_tokens);

}  // namespace shoal
