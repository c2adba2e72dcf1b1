#pragma once

#include <cstdint>

struct CUstream_st;

// D weights of a diagonal, the shorter side  P the longer side  K diagonals

/// Kernels of diagonals on a GPU. Weight j of a diagonal joins place j of the shorter side with
/// place (j + its offset) mod P of the longer one. Pointers are to GPU memory; each call is queued
/// on the stream. There are tokens and diagonals, and sides are counted in 31 bits.
namespace shoal::diagonal_cuda {

struct Diagonals {
  int32_t shorter, longer, count;  ///< D, P, K
  const int32_t* offset_K;
};

/// A row of `width` numbers for each token. Place i is at at[i], or, of a null `at`, at i.
template <class Real>
struct Side {
  Real* data;
  int32_t width;
  const int32_t* at;
};

/// to = the matrix, or its transpose, times from.
template <class Real>
struct Product {
  Diagonals diagonals;
  const Real* value_KD;
  Side<const Real> from;
  Side<Real> to;
  int64_t tokens;
  bool to_longer;
};
template <class Real>
void launch_product(const Product<Real>& job, CUstream_st* stream);

/// Sums over tokens of shorter[j] longer[j + offset], of each part of `part_tokens` by itself:
/// [parts, K, D].
template <class Real>
struct Dots {
  Diagonals diagonals;
  const Real *shorter, *longer;
  int64_t tokens, part_tokens, parts;
  Real* sum;
};
template <class Real>
void launch_dots(const Dots<Real>& job, CUstream_st* stream);

}  // namespace shoal::diagonal_cuda
