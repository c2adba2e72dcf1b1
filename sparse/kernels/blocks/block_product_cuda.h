#pragma once

#include <cstdint>

struct CUstream_st;

// b side of a block, a multiple of 16  z blocks

/// Kernels of square blocks on a GPU. Values are [z, b, b], output by input. Pointers are to GPU
/// memory; each call is queued on the stream. The numbers of tokens and blocks are not 0.
namespace shoal::block_cuda {

/// A matrix [tokens, width]. Element i of a row is at at[i], or at i if `at` is null.
template <class Real>
struct Side {
  Real* data;
  int64_t width;
  const int32_t* at;
};

/// to = matrix · from, or its transpose · from. Row i of the blocks of this factor has the entries
/// [start[i], start[i + 1]) of `column` and `block`: each block's column and its index in `values`.
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

/// Gradient of the values: sums over tokens of dy · x for each weight of the blocks at `row` and
/// `column`, separately for each part of `part_tokens` tokens: [parts, z, b, b].
template <class Real>
struct Dots {
  int64_t size, count;  ///< b, z
  const int32_t *row, *column;
  const Real *dy, *x;
  int64_t outputs, inputs;
  int64_t tokens, part_tokens, parts;
  Real* sum;
};
template <class Real>
void launch_dots(const Dots<Real>& job, CUstream_st* stream);

}  // namespace shoal::block_cuda
