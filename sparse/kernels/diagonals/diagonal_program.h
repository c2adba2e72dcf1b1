#pragma once

#include <cstdint>

// D weights of a diagonal, the shorter side  P the longer side  K diagonals  t tokens
namespace shoal {

/// Some diagonals of a matrix (sparse/patterns/diagonal.h) in the layout the loops read. Weight j
/// of a diagonal joins index j of the shorter side with index (j + its offset) mod P of the longer
/// one: the matrix and its transpose use the same values in both passes.
///
/// Values [K, stride] have kDiagonalPad zeros before and after the D weights of each diagonal.
struct DiagonalProgram {
  int64_t shorter = 0, longer = 0;   ///< D, P
  int64_t count = 0;                 ///< K
  const int32_t* offsets = nullptr;  ///< ascending
  int64_t stride = 0;
};

/// Padding at both ends of a diagonal that vectors may read.
inline constexpr int64_t kDiagonalPad = 16;
/// Number of tokens whose sums fit in registers.
inline constexpr int64_t kDiagonalTokens = 8;

/// n rounded up to a multiple of the vector length kDiagonalPad.
inline int64_t whole_vectors(int64_t n) {
  return (n + kDiagonalPad - 1) / kDiagonalPad * kDiagonalPad;
}

/// A row of numbers for each token, `stride` apart. Rows of the longer side are followed by a
/// repeat of their first D + kDiagonalPad elements; rows of the shorter side have kDiagonalPad
/// zeros before and after.
template <class Real>
struct DiagonalRows {
  Real* data;
  int64_t stride;
};

/// One thread's part: some tokens, and the indices [first, last) of the side that is written, both
/// multiples of 16 except at its end.
template <class Real>
struct DiagonalLoop {
  const DiagonalProgram& program;
  int64_t tokens, first, last;
};

/// shorter[j] += sum over diagonals of values[j] longer[j + offset].
template <class Real>
void multiply_to_shorter(const DiagonalLoop<Real>& loop, const Real* values,
                         const DiagonalRows<const Real>& longer, const DiagonalRows<Real>& shorter);
/// longer[p] += sum over diagonals of values[p - offset] shorter[p - offset]. Here `longer` ends at
/// P, without the repeat.
template <class Real>
void multiply_to_longer(const DiagonalLoop<Real>& loop, const Real* values,
                        const DiagonalRows<const Real>& shorter, const DiagonalRows<Real>& longer);
/// gradient[j] += sum over tokens of shorter[j] longer[j + offset].
template <class Real>
void add_diagonal_dots(const DiagonalLoop<Real>& loop, const DiagonalRows<const Real>& shorter,
                       const DiagonalRows<const Real>& longer, Real* gradient);

}  // namespace shoal
