#pragma once

#include <torch/types.h>

#include <cstdint>

// S patches  C width
namespace shoal {

/// Fixed 2-D position encoding of a grid of patches, [rows * columns, width] in row-major order.
/// The encoding of the patch in row r and column c is, in four quarters of the width,
///     sin(r w_d), cos(r w_d), sin(c w_d), cos(c w_d)  with  w_d = 10000^(-d / (width / 4)).
/// TORCH_CHECK that the width is a multiple of 4.
/// Source: vits.py of MoCo v3's code, whose grid_w holds the row numbers.
torch::Tensor sin_cos_positions(int64_t rows, int64_t columns, int64_t width,
                                const torch::TensorOptions& options);

}  // namespace shoal
