#pragma once

#include <cstdint>

// D weights of a diagonal, the shorter side  P the longer side  K diagonals  t tokens
namespace shoal {

/// Some diagonals of a matrix (sparse/patterns/diagonal.h) as loops read them. Weight j of a
/// diagonal joins place j of the shorter side with place (j + its offset) mod P of the longer one:
/// both directions of the product, and those of the transpose, use the same values.
///
/// Values [K, stride] have kDiagonalPad zeros before and after the D weights of each diagonal.
struct DiagonalProgram {
  int64_t shorter = 0, longer = 0;   ///< D, P
  int64_t count = 0;                 ///< K
  const int32_t* offsets = nullptr;  ///< ascending
  int64_t stride = 0;
};

/// Vectors may read so far beyond the ends of a diagonal.
inline constexpr int64_t kDiagonalPad = 16;
/// Tokens that registers hold the sums of.
inline constexpr int64_t kDiagonalTokens = 8;

/// n, rounded up to whole vectors.
inline int64_t whole_vectors(int64_t n) {
  return (n + kDiagonalPad - 1) / kDiagonalPad * kDiagonalPad;
}

/// A row of numbers for each token, `stride` apart. Those of the longer side go on with their
/// beginning, for D + kDiagonalPad more; those of the shorter side have kDiagonalPad zeros before
/// and after.
template <class Real>
struct DiagonalRows {
  Real* data;
  int64_t stride;
};

/// What the loops read and add to, of some tokens and the places [first, last) of the side that is
/// written: multiples of 16, but for its end. One thread.
template <class Real>
struct DiagonalLoop {
  const DiagonalProgram& program;
  int64_t tokens, first, last;
};

/// shorter[j] += sum over diagonals of values[j] longer[j + offset].
template <class Real>
void multiply_to_shorter(const DiagonalLoop<Real>& loop, const Real* values,
                         const DiagonalRows<const Real>& longer, const DiagonalRows<Real>& shorter);
/// longer[p] += sum over diagonals of values[p - offset] shorter[p - offset]. This `longer` does
/// not go on behind P.
template <class Real>
void multiply_to_longer(const DiagonalLoop<Real>& loop, const Real* values,
                        const DiagonalRows<const Real>& shorter, const DiagonalRows<Real>& longer);
/// gradient[j] += sum over tokens of shorter[j] longer[j + offset].
template <class Real>
void add_diagonal_dots(const DiagonalLoop<Real>& loop, const DiagonalRows<const Real>& shorter,
                       const DiagonalRows<const Real>& longer, Real* gradient);

}  // namespace shoal
