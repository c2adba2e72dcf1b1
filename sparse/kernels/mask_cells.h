#pragma once

#include <torch/types.h>

#include <cstdint>

// m outputs  n inputs
namespace shoal {

/// Offsets of the diagonals (sparse/patterns/diagonal.h) of a diagonal mask [m, n], int64,
/// ascending. TORCH_CHECK that the mask consists of whole diagonals.
torch::Tensor offsets_that_are_on(const torch::Tensor& mask_mn);

/// Block mask, bool [m / size, n / size], of a contiguous mask of size x size blocks. TORCH_CHECK
/// that the mask consists of whole blocks and that a kernel supports the size.
torch::Tensor blocks_that_are_on(const torch::Tensor& mask_mn, int64_t size);

}  // namespace shoal
