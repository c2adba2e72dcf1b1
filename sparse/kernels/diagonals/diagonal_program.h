#pragma once

#include <cstdint>

// D weights of a diagonal, the shorter side  P the longer side  K diagonals  t tokens
namespace shoal {

/// Diagonals of a matrix (sparse/patterns/diagonal.h) for CPU loops. Weight j of a diagonal links
/// element j of the shorter side with element (j + offset) mod P of the longer one, so products
/// with the matrix and with its transpose read the same values.
/// `values` and `gradient` point to the start of a buffer [K, stride]. Its rows have kDiagonalPad
/// zeros, the D weights of a diagonal (values[j] below), and at least kDiagonalPad zeros.
struct DiagonalProgram {
  int64_t shorter = 0, longer = 0;   ///< D, P
  int64_t count = 0;                 ///< K
  const int32_t* offsets = nullptr;  ///< ascending
  int64_t stride = 0;                ///< from one row of the buffer to the next, in elements
};

/// Number of elements that vector loads may read beyond either end of a diagonal.
inline constexpr int64_t kDiagonalPad = 16;
/// Maximum number of tokens of a loop, whose sums are kept in registers.
inline constexpr int64_t kDiagonalTokens = 8;

/// Rounds n up to whole vectors.
inline int64_t whole_vectors(int64_t n) {
  return (n + kDiagonalPad - 1) / kDiagonalPad * kDiagonalPad;
}

/// Rows of elements, one per token, `stride` elements apart. After its end, an input row of the
/// longer side repeats its first D elements, so that j + offset needs no modulo; kDiagonalPad more
/// must be readable. An input row of the shorter side has kDiagonalPad zeros before and after. An
/// output row has room for its length rounded up by whole_vectors().
template <class Real>
struct DiagonalRows {
  Real* data;  ///< element 0 of the first row; zeros, if any, lie before it
  int64_t stride;
};

/// Part of a product for one thread: elements [first, last) of the output (add_diagonal_dots: of
/// the shorter side) for the first `tokens` rows. Bounds are multiples of 16 or the side's end.
struct DiagonalLoop {
  const DiagonalProgram& program;
  int64_t tokens, first, last;
};

/// shorter[j] += sum over diagonals of values[j] longer[j + offset].
template <class Real>
void multiply_to_shorter(const DiagonalLoop& loop, const Real* values,
                         const DiagonalRows<const Real>& longer, const DiagonalRows<Real>& shorter);
/// longer[p] += sum over diagonals of values[j] shorter[j] for j = (p - offset) mod P, if j < D.
template <class Real>
void multiply_to_longer(const DiagonalLoop& loop, const Real* values,
                        const DiagonalRows<const Real>& shorter, const DiagonalRows<Real>& longer);
/// gradient[j] += sum over tokens of shorter[j] longer[j + offset]; [K, stride], like the values.
template <class Real>
void add_diagonal_dots(const DiagonalLoop& loop, const DiagonalRows<const Real>& shorter,
                       const DiagonalRows<const Real>& longer, Real* gradient);

}  // namespace shoal
