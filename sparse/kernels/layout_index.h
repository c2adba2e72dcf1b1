#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "sparse/kernels/sparse_layout.h"

// m outputs  n inputs  z blocks
namespace shoal {

/// Offsets o of the diagonals that a mask [m, n] has, int64, ascending: for m >= n diagonal o is
/// ((c + o) mod m, c) for all columns c, else (r, (r + o) mod n) for all rows r
/// (sparse/patterns/diagonal.h). TORCH_CHECK that the mask consists of whole diagonals.
torch::Tensor offsets_that_are_on(const torch::Tensor& mask_mn);

/// Blocks that are on in a contiguous mask [m, n] of size x size blocks, on its device. TORCH_CHECK
/// that the mask consists of whole blocks and that a kernel supports the size.
struct BlockIndex {
  BlockIndex(const torch::Tensor& mask_mn, int64_t size);

  torch::Tensor row_z, column_z;  ///< int64, by rows
  /// Starts of block rows, columns and numbers of blocks: of the matrix, of its transpose; int32.
  std::vector<torch::Tensor> by_output, by_input;
};

/// Column of x for each input of S, and column of y for each output, in a permuted product P S Q:
/// int32 on a device; undefined: not permuted.
struct SparsePlaces {
  SparsePlaces(const SparseOrder& order, const torch::Device& device);
  /// Places on the side that a product reads, and on the side that it writes.
  const torch::Tensor& from(bool is_transposed) const {
    return is_transposed ? output_at : input_at;
  }
  const torch::Tensor& to(bool is_transposed) const { return is_transposed ? input_at : output_at; }

  torch::Tensor input_at, output_at;
};

/// Returns x with its last dimension permuted into the order of S; `at`: a tensor of SparsePlaces.
torch::Tensor in_order(const torch::Tensor& x, const torch::Tensor& at);

/// Returns where each number from 0 to `count` begins in a sorted list: int32 [count + 1].
torch::Tensor starts_of(const torch::Tensor& ascending, int64_t count);

}  // namespace shoal
