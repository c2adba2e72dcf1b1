#pragma once

#include <cstdint>

struct CUstream_st;

// b side of a block, a multiple of 16  z blocks

/// Kernels of square blocks on a GPU. Values are [z, b, b], output by input. Pointers are to GPU
/// memory; each call is queued on the stream. There are tokens and blocks.
namespace shoal::block_cuda {

/// A row of `width` numbers for each token. Place i is at at[i], or, of a null `at`, at i.
template <class Real>
struct Side {
  Real* data;
  int64_t width;
  const int32_t* at;
};

/// to = the matrix times from, or, transposed, its transpose times from. Row i of the blocks of
/// this factor has the blocks [start[i], start[i + 1]), each of its column and of its place among
/// the values.
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

/// Sums over tokens of dy and x, for each weight of the blocks in these rows and columns, of each
/// part of `part_tokens` by itself: [parts, z, b, b].
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
