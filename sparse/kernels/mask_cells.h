#pragma once

#include <torch/types.h>

#include <cstdint>

// m outputs  n inputs
namespace shoal {

/// Offsets of the whole diagonals (sparse/patterns/diagonal.h) in a mask [m, n], int64, ascending.
/// TORCH_CHECK if the mask is not made of whole diagonals.
torch::Tensor offsets_that_are_on(const torch::Tensor& mask_mn);

/// bool [m / size, n / size]: the blocks of size x size weights that are on in a contiguous mask.
/// TORCH_CHECK if the mask is not made of whole blocks or the size has no kernel.
torch::Tensor blocks_that_are_on(const torch::Tensor& mask_mn, int64_t size);

}  // namespace shoal
