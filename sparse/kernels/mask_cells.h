#pragma once

#include <torch/types.h>

#include <cstdint>

// m outputs  n inputs
namespace shoal {

/// Offsets of the diagonals (sparse/patterns/diagonal.h) that a mask [m, n] is made of, int64,
/// ascending. TORCH_CHECK on any other mask.
torch::Tensor offsets_that_are_on(const torch::Tensor& mask_mn);

/// bool [m / size, n / size]: the blocks of size x size weights that a contiguous mask is made of.
/// TORCH_CHECK on any other mask, and on sizes that have no kernel.
torch::Tensor blocks_that_are_on(const torch::Tensor& mask_mn, int64_t size);

}  // namespace shoal
