#pragma once

#include <cstdint>

struct CUstream_st;

// D weights of a diagonal, the shorter side  P the longer side  K diagonals

/// CUDA launchers for products with diagonals. Weight j of a diagonal links element j of the
/// shorter side with element (j + offset) mod P of the longer one. Pointers are to GPU memory;
/// calls are queued on the stream. There must be tokens and diagonals, and sides below 2^31.
namespace shoal::diagonal_cuda {

struct Diagonals {
  int32_t shorter, longer, count;  ///< D, P, K
  const int32_t* offset_K;
};

/// Tokens: a row each, of `width` = D or P elements. Element i is in column at[i]; null: column i.
template <class Real>
struct Side {
  Real* data;
  int32_t width;
  const int32_t* at;
};

/// Product of the matrix, or of its transpose, with the tokens `from`. Overwrites `to`.
template <class Real>
struct Product {
  Diagonals diagonals;
  const Real* value_KD;
  Side<const Real> from;
  Side<Real> to;
  int64_t tokens;
  bool to_longer;  ///< true: `from` is the shorter side, `to` the longer one
};
template <class Real>
void launch_product(const Product<Real>& job, CUstream_st* stream);

/// Gradient of the values: shorter[j] longer[j + offset] summed over tokens, for each part of
/// `part_tokens` tokens. Overwrites sum [parts, K, D]. The caller permutes x and dy, if needed.
template <class Real>
struct Dots {
  Diagonals diagonals;
  const Real *shorter, *longer;  ///< x and dy, or dy and x: a row per token
  int64_t tokens, part_tokens, parts;
  Real* sum;
};
template <class Real>
void launch_dots(const Dots<Real>& job, CUstream_st* stream);

}  // namespace shoal::diagonal_cuda
