#pragma once

#include <cstdint>

// T tokens  m outputs  n inputs
namespace shoal {

/// Sparse matrix in CSR format for CPU loops: output i has the values [start[i], start[i + 1]),
/// whose inputs are in `input`.
struct RowProgram {
  int64_t num_outputs = 0, num_inputs = 0;
  const int32_t* start = nullptr;
  const int32_t* input = nullptr;
};

/// Number of tokens in a group: the lanes of a Simd vector, which may take several registers.
inline constexpr int64_t kGroupTokens = 16;
inline constexpr int64_t kTileGroups = 4;  ///< maximum number of groups in a tile

/// Tokens, a row of `width` elements each, rows `stride` apart.
template <class Real>
struct TokenRows {
  Real* data;
  int64_t stride, width, tokens;

  /// `count` of the tokens, from number `first` on.
  TokenRows part(int64_t first, int64_t count) const {
    return {data + first * stride, stride, width, count};
  }
};

// Loops over one tile, on one thread. A tile is the transpose of x, [inputs, groups * 16 tokens],
// with zeros after the last token.

/// to [columns, rows] = transpose of from [rows, columns], with the given distances between rows.
template <class Real>
struct Transposition {
  const Real* from;
  int64_t from_stride, rows, columns;
  Real* to;
  int64_t to_stride;
};
template <class Real>
void transpose_matrix(const Transposition<Real>& matrix);

/// Transposes up to 64 tokens into a tile.
template <class Real>
void transpose_tokens(const TokenRows<const Real>& x, int64_t groups, Real* tile);

template <class Real>
struct RowProduct {
  const RowProgram& program;
  const Real* values;
  const Real* bias;  ///< may be null
};
/// Computes y for outputs [first, last) from a tile of x.
template <class Real>
void multiply_rows(const RowProduct<Real>& product, const Real* tile, int64_t first, int64_t last,
                   const TokenRows<Real>& y);
/// Computes the outputs [first, last) of y for one token, which needs no tile.
template <class Real>
void multiply_rows_once(const RowProduct<Real>& product, const Real* x, int64_t first, int64_t last,
                        Real* y);

/// Arguments of add_row_dots. For its range [first, last), dy_tile is [last - first, groups * 16].
template <class Real>
struct RowDots {
  const RowProgram& program;
  const Real* dy_tile;
  const Real* x_tile;
  int64_t groups;
};
/// Adds the gradient of the values of outputs [first, last) to `gradient`, indexed like `values`.
template <class Real>
void add_row_dots(const RowDots<Real>& dots, int64_t first, int64_t last, Real* gradient);

/// Number of groups in a tile of `tokens` tokens.
inline int64_t groups_of(int64_t tokens) { return (tokens + kGroupTokens - 1) / kGroupTokens; }

}  // namespace shoal
