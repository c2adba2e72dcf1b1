#pragma once

#include <cstdint>

struct CUstream_st;

// b side of a block, a multiple of 16  z blocks

/// CUDA launchers for block-sparse products. Values are [z, b, b], output by input. Pointers are to
/// GPU memory; calls are queued on the stream. Numbers of tokens and blocks must be positive.
namespace shoal::block_cuda {

/// Dense matrix of `width` columns, a row per token. Logical column i is stored at at[i]; null: i.
template <class Real>
struct Side {
  Real* data;
  int64_t width;
  const int32_t* at;
};

/// Product of a factor, the matrix or (`is_transposed`) its transpose, with the tokens `from`.
/// Block row i of the factor has the blocks [start[i], start[i + 1]). `column` holds the block
/// column of each in the factor, and `block` its index in `values`, which are never transposed.
template <class Real>
struct Product {
  int64_t size;  ///< b
  const int32_t *start, *column, *block;
  const Real* values;
  Side<const Real> from;
  Side<Real> to;
  int64_t tokens;
  bool is_transposed;
};
template <class Real>
void launch_product(const Product<Real>& job, CUstream_st* stream);

/// Gradient of the values: products of dy and x summed over tokens, for the blocks at (row,
/// column). Each part of `part_tokens` tokens has its own sum; `sum` is [parts, z, b, b].
template <class Real>
struct Dots {
  int64_t size, count;  ///< b, z
  const int32_t *row, *column;
  const Real *dy, *x;
  int64_t outputs, inputs;  ///< widths of dy and x
  int64_t tokens, part_tokens, parts;
  Real* sum;
};
template <class Real>
void launch_dots(const Dots<Real>& job, CUstream_st* stream);

}  // namespace shoal::block_cuda
