#pragma once

#include <cstdint>

#include "sparse/kernels/rows/row_program.h"

// T tokens  m outputs  n inputs  b side of a block
namespace shoal {

/// The weights of a sparse matrix of square blocks, whose side is a multiple of 16, as loops read
/// it. Block rows have the blocks [start[i], start[i + 1]); of each its values are [input, output].
struct BlockProgram {
  int64_t size = 16;
  int64_t num_block_rows = 0;
  const int32_t* start = nullptr;
  const int32_t* block_column = nullptr;  ///< of each block
  const int32_t* input_at = nullptr;      ///< where x has an input; null: the same
  const int32_t* output_at = nullptr;     ///< where y has an output; null: the same

  int64_t num_blocks() const { return start[num_block_rows]; }
};

template <class Real>
struct BlockProduct {
  const BlockProgram& program;
  const Real* values;
  const Real* bias;  ///< in y's order; may be null
  int64_t first, last;
};
/// y of the block rows [first, last), of as many tokens as x and y have; one thread.
template <class Real>
void multiply_blocks(const BlockProduct<Real>& product, const TokenRows<const Real>& x,
                     const TokenRows<Real>& y);

/// Adds to the gradient of the values of the block rows [first, last) the products of x and dy.
/// dy is in the program's order of outputs.
template <class Real>
struct BlockDots {
  const BlockProgram& program;
  TokenRows<const Real> x, dy;
};
template <class Real>
void add_block_dots(const BlockDots<Real>& dots, int64_t first, int64_t last, Real* gradient);

}  // namespace shoal
