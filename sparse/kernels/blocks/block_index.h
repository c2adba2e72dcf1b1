#pragma once

#include <ATen/ops/arange.h>

#include <vector>

#include "sparse/kernels/layout_index.h"

// m outputs  n inputs  z blocks
namespace shoal {

/// Blocks that are on in a mask [m, n] of size x size blocks, on the device of the mask. Throws
/// like blocks_that_are_on.
struct BlockIndex {
  BlockIndex(const torch::Tensor& mask_mn, int64_t size) {
    const torch::Tensor places = blocks_that_are_on(mask_mn, size).nonzero();
    row_z = places.select(1, 0).contiguous();
    column_z = places.select(1, 1).contiguous();
    by_output = {starts_of(row_z, mask_mn.size(0) / size), column_z.to(torch::kInt32),
                 at::arange(row_z.size(0), row_z.options().dtype(torch::kInt32))};
    const torch::Tensor block = column_z.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
    by_input = {starts_of(column_z.index_select(0, block), mask_mn.size(1) / size),
                row_z.index_select(0, block).to(torch::kInt32), block.to(torch::kInt32)};
  }

  torch::Tensor row_z, column_z;  ///< int64, by rows
  /// Starts of block rows, columns and numbers of blocks: of the matrix, of its transpose; int32.
  std::vector<torch::Tensor> by_output, by_input;
};

}  // namespace shoal
