#pragma once

#include <torch/types.h>

#include <cstdint>

// m outputs  n inputs
namespace shoal {

/// Offsets o of the diagonals that a mask [m, n] has, int64, ascending: for m >= n diagonal o is
/// ((c + o) mod m, c) for all columns c, else (r, (r + o) mod n) for all rows r
/// (sparse/patterns/diagonal.h). TORCH_CHECK that the mask consists of whole diagonals.
torch::Tensor offsets_that_are_on(const torch::Tensor& mask_mn);

/// Block mask, bool [m / size, n / size], of a contiguous mask of size x size blocks. TORCH_CHECK
/// that the mask consists of whole blocks and that a kernel supports the size.
torch::Tensor blocks_that_are_on(const torch::Tensor& mask_mn, int64_t size);

}  // namespace shoal
