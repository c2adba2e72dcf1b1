#pragma once

#include <cstdint>

#include "sparse/kernels/rows/row_program.h"

// T tokens  m outputs  n inputs  b side of a block
namespace shoal {

/// A matrix of square blocks in the layout the loops read; the side of a block is a multiple of 16.
/// Block row i has the blocks [start[i], start[i + 1]); the values of each are [input, output].
struct BlockProgram {
  int64_t size = 16;
  int64_t num_block_rows = 0;
  const int32_t* start = nullptr;
  const int32_t* block_column = nullptr;  ///< column of each block
  const int32_t* input_at = nullptr;      ///< position of each input in x; null: unchanged
  const int32_t* output_at = nullptr;     ///< position of each output in y; null: unchanged

  int64_t num_blocks() const { return start[num_block_rows]; }
};

template <class Real>
struct BlockProduct {
  const BlockProgram& program;
  const Real* values;
  const Real* bias;  ///< in y's order; may be null
  int64_t first, last;
};
/// Computes the block rows [first, last) of y, for all tokens of x and y; one thread.
template <class Real>
void multiply_blocks(const BlockProduct<Real>& product, const TokenRows<const Real>& x,
                     const TokenRows<Real>& y);

/// Adds the gradient of the values of the block rows [first, last), from x and dy. dy is in the
/// program's order of outputs.
template <class Real>
struct BlockDots {
  const BlockProgram& program;
  TokenRows<const Real> x, dy;
};
template <class Real>
void add_block_dots(const BlockDots<Real>& dots, int64_t first, int64_t last, Real* gradient);

}  // namespace shoal
