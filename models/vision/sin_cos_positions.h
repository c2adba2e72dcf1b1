#pragma once

#include <torch/types.h>

#include <cstdint>

// S patches  C width
namespace shoal {

/// Fixed position encoding of a grid of patches, row by row: [rows columns, width],
///     sin(r w_d), cos(r w_d), sin(c w_d), cos(c w_d)  with  w_d = 10000^(-d / (width / 4)),
/// a quarter of the width each, of the patch in row r and column c. The width is a multiple of 4,
/// else TORCH_CHECK.
/// Source: MoCo v3's vits.py, which reads its first axis as rows.
torch::Tensor sin_cos_positions(int64_t rows, int64_t columns, int64_t width,
                                const torch::TensorOptions& options);

}  // namespace shoal
