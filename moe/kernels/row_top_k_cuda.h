#pragma once

#include <cstdint>

struct CUstream_st;

// T tokens  U units  K choices

/// Kernels of moe/kernels/row_top_k.h. Pointers are to GPU memory; each call is queued on the
/// stream.
namespace shoal::top_k_cuda {

/// Largest k that the kernel supports.
inline constexpr int64_t kMostChoices = 8;

/// Units of the k highest scores of each row, highest first. With `score_TK` also writes their
/// scores and skips scores of minus infinity or NaN: if fewer than k remain, the last places get
/// minus infinity and the units 0, 1, ... in turn.
template <class Real>
struct TopK {
  const Real* score_TU;
  int64_t* unit_TK;
  Real* score_TK;
  int64_t num_tokens, num_units, k;
};
template <class Real>
void launch_top_k(const TopK<Real>& job, CUstream_st* stream);

/// For consecutive runs of `length` tokens, marks the `count` lowest scores of each; among ties the
/// higher tokens. mark_T is false before. count <= length.
template <class Real>
struct MarkLowest {
  const Real* score_T;
  bool* mark_T;
  int64_t first, length, count, num_runs;
};
template <class Real>
void launch_mark_lowest(const MarkLowest<Real>& job, CUstream_st* stream);

}  // namespace shoal::top_k_cuda
