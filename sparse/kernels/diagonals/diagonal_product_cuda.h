#pragma once

#include <cstdint>

struct CUstream_st;

// D weights of a diagonal, the shorter side  P the longer side  K diagonals

/// Kernels of diagonals on a GPU. Weight j of a diagonal joins index j of the shorter side with
/// index (j + its offset) mod P of the longer one. Pointers are to GPU memory; each call is queued
/// on the stream. Tokens and diagonals are not 0, and sides are below 2^31.
namespace shoal::diagonal_cuda {

struct Diagonals {
  int32_t shorter, longer, count;  ///< D, P, K
  const int32_t* offset_K;
};

/// A matrix [tokens, width]. Element i of a row is at at[i], or at i if `at` is null.
template <class Real>
struct Side {
  Real* data;
  int32_t width;
  const int32_t* at;
};

/// to = matrix · from, or its transpose · from.
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

/// Gradient of the values: sums over tokens of shorter[j] longer[j + offset], separately for each
/// part of `part_tokens` tokens: [parts, K, D].
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
