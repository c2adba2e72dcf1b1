#pragma once

#include <cstdint>

struct CUstream_st;

// T tokens  U units (experts), or keys of a memory unit  K choices

/// CUDA kernels of row_top_k.h, for float and double in GPU memory, queued on the stream.
namespace shoal::top_k_cuda {

/// Largest k that the kernel supports.
inline constexpr int64_t kMostChoices = 8;

/// Writes the units of the k highest scores of each row, best first, ties to the lower unit; NaN
/// counts as -inf. With score_TK also writes the scores; the first choice of score -inf then gets
/// unit 0, the next unit 1, as in memory_lookup on CPUs: a row may have a unit twice.
template <class Real>
struct TopK {
  const Real* score_TU;
  int64_t* unit_TK;
  Real* score_TK;  ///< nullptr: scores are not written
  int64_t num_tokens, num_units, k;
};
template <class Real>
void launch_top_k(const TopK<Real>& job, CUstream_st* stream);

/// mark_lowest, for routers that drop tokens: sets mark_T, which must be all false, for the `count`
/// lowest scores of each run, NaN as -inf, among ties for the higher tokens. Run i has the `length`
/// tokens from first + i * length on. count <= length.
template <class Real>
struct MarkLowest {
  const Real* score_T;
  bool* mark_T;
  int64_t first, length, count, num_runs;
};
template <class Real>
void launch_mark_lowest(const MarkLowest<Real>& job, CUstream_st* stream);

}  // namespace shoal::top_k_cuda
