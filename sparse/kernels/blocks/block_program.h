#pragma once

#include <cstdint>

#include "sparse/kernels/rows/row_program.h"

// T tokens  m outputs  n inputs  b side of a block
namespace shoal {

/// Block-sparse matrix for CPU loops: square blocks whose side is a multiple of 16. Row i of blocks
/// has the blocks [start[i], start[i + 1]), each stored as [input, output].
struct BlockProgram {
  int64_t size = 16;
  int64_t num_block_rows = 0;
  const int32_t* start = nullptr;
  const int32_t* block_column = nullptr;  ///< column of each block
  const int32_t* input_at = nullptr;      ///< column of x that input i reads; null: i
  const int32_t* output_at = nullptr;     ///< column of y that output i writes; null: i
};

template <class Real>
struct BlockProduct {
  const BlockProgram& program;
  const Real* values;
  const Real* bias;     ///< by column of y; may be null
  int64_t first, last;  ///< rows of blocks
};
/// Computes y for rows of blocks [first, last) and all tokens of x, on one thread, by input_at and
/// output_at. TokenRows: a row of `width` elements for each token, `stride` elements apart.
template <class Real>
void multiply_blocks(const BlockProduct<Real>& product, const TokenRows<const Real>& x,
                     const TokenRows<Real>& y);

/// Arguments for the gradient of the values. x is read by input_at. dy, read in whole vectors, is
/// not read by output_at: the caller puts its columns in the matrix's order of outputs.
template <class Real>
struct BlockDots {
  const BlockProgram& program;
  TokenRows<const Real> x, dy;
};
/// Adds the gradient of the values of block rows [first, last) to `gradient`, indexed like values.
template <class Real>
void add_block_dots(const BlockDots<Real>& dots, int64_t first, int64_t last, Real* gradient);

}  // namespace shoal
