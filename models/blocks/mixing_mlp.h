#pragma once

#include <torch/types.h>

#include "models/blocks/mlp.h"
#include "models/kernels/layer_norm.h"

// B images  S tokens  C width  H hidden
namespace shoal {

/// x + t(MLP(t(norm(x)))), Sparse-MLP eq. 8: mixes tokens within each channel. The products are
/// W1 [H, S] times norm(x)_b [S, C] for each image, so nothing is transposed.
///
/// x is contiguous, float32, float64 or bfloat16; B may be 0. Differentiable in x and all
/// parameters. TORCH_CHECK if sizes do not fit.
torch::Tensor mix_tokens(const torch::Tensor& x_BSC, const LayerNorm& norm, const Mlp& mlp);

/// x + MLP(norm(x)), Sparse-MLP eq. 9: mixes channels within each token. Otherwise as mix_tokens.
torch::Tensor mix_channels(const torch::Tensor& x_BSC, const LayerNorm& norm, const Mlp& mlp);

}  // namespace shoal
