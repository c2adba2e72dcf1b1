#pragma once

#include <cstdint>

// T tokens  m outputs  n inputs
namespace shoal {

/// A sparse matrix by its outputs, as loops read it: output i has the values
/// [start[i], start[i + 1]), each of the input in `input`.
struct RowProgram {
  int64_t num_outputs = 0, num_inputs = 0;
  const int32_t* start = nullptr;
  const int32_t* input = nullptr;
};

/// Tokens of a tile come in groups of 16 lanes, of which it has up to four.
inline constexpr int64_t kGroupTokens = 16;
inline constexpr int64_t kTileGroups = 4;

/// Up to 64 tokens, token by token: rows of `width` numbers, `stride` apart.
template <class Real>
struct TokenRows {
  Real* data;
  int64_t stride, width, tokens;
};

// Loops over one tile; one thread. A tile of x is [inputs, groups * 16 tokens] with zeros behind
// the last token.

/// to [columns, rows] = the transpose of from [rows, columns]; rows of either are so far apart.
template <class Real>
struct Transposition {
  const Real* from;
  int64_t from_stride, rows, columns;
  Real* to;
  int64_t to_stride;
};
template <class Real>
void transpose_matrix(const Transposition<Real>& matrix);

/// The tile of some tokens: their transpose.
template <class Real>
void transpose_tokens(const TokenRows<const Real>& x, int64_t groups, Real* tile);

template <class Real>
struct RowProduct {
  const RowProgram& program;
  const Real* values;
  const Real* bias;  ///< may be null
};
/// y of the outputs [first, last).
template <class Real>
void multiply_rows(const RowProduct<Real>& product, const Real* tile, int64_t first, int64_t last,
                   const TokenRows<Real>& y);
/// The same of one token, which needs no tile.
template <class Real>
void multiply_rows_once(const RowProduct<Real>& product, const Real* x, int64_t first, int64_t last,
                        Real* y);

/// The inputs of the gradient of values: the tiles of x and of dy, [last - first, groups * 16].
template <class Real>
struct RowDots {
  const RowProgram& program;
  const Real* dy_tile;
  const Real* x_tile;
  int64_t groups;
};
/// Adds to the gradient of the values of the outputs [first, last).
template <class Real>
void add_row_dots(const RowDots<Real>& dots, int64_t first, int64_t last, Real* gradient);

/// Groups that a tile of so many tokens has.
inline int64_t groups_of(int64_t tokens) { return (tokens + kGroupTokens - 1) / kGroupTokens; }

}  // namespace shoal
