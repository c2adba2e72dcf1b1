#pragma once

#include <cstdint>

struct CUstream_st;

// b side of a block, a multiple of 16  z blocks

/// CUDA launchers for block-sparse products. Values are [z, b, b], output by input. Pointers are to
/// GPU memory; calls are queued on the stream. Numbers of tokens and blocks must be positive.
namespace shoal::block_cuda {

/// Dense [tokens, width]. Logical column i is stored in column at[i], or in column i if at is null.
template <class Real>
struct Side {
  Real* data;
  int64_t width;
  const int32_t* at;
};

/// Overwrites all of `to` with from Fᵀ. F is the block-sparse matrix or, if `is_transposed`, its
/// transpose. Block row i of F has the entries e in [start[i], start[i + 1]): the block in block
/// column column[e] of F is values[block[e]]. `values` are never transposed.
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

/// Gradient of the values. Overwrites sum[p, z] with the block in block row row[z] and block column
/// column[z] of dyᵀ x over the tokens of part p. `sum` is [parts, z, b, b]. A part has
/// `part_tokens` tokens, the last may have fewer. Columns of dy and x are in logical order.
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
