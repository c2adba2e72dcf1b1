#pragma once

#include <cstdint>

struct CUstream_st;

// R rows  D width  K keys of a unit  k keys chosen per row  u units  H = R k hits

/// CUDA kernels that look up rows in memory units (moe/nexus/kernels/memory_lookup.h). A memory
/// unit is a table of K keys and values; a row's result is the weighted sum of the values of its k
/// best keys. Each of these (row, key) pairs is a hit. Pointers are to GPU memory; each call is
/// queued on the stream. Rows are sorted by unit; the rows of unit i end before row end_u[i].
/// The caller finds the k best keys (launch_top_k), best first. NaN counts as -inf. If fewer than k
/// scores are above -inf, the missing hits have score -inf and placeholder keys 0, 1, ..., which
/// the backward kernels treat as any key; weights, result and gradients of the row are then NaN.
namespace shoal::memory_lookup_cuda {

template <class Real>
struct Tables {
  const Real *keys, *values;
  const Real* scale_u;  ///< nullptr: 1
  const int32_t* end_u;
  int num_units;
  int64_t num_rows, num_keys, width, k;
};

/// Softmax of a row's k scores, times the unit's scale, and weighted sum of the values.
template <class Real>
struct Sums {
  const int64_t* chosen_Rk;  ///< the keys chosen for each row, numbered within its unit
  const Real* score_Rk;      ///< <query, key> of these keys, not scaled
  Real *weight_Rk, *y;       ///< output: softmax weights, and sums [R, D]
};
template <class Real>
void launch_sums(const Tables<Real>& tables, const Sums<Real>& job, CUstream_st* stream);

/// Backward pass of Sums to scores and queries.
template <class Real>
struct RowsBackward {
  const Real* y_grad;
  const int64_t* chosen_Rk;
  const Real* weight_Rk;
  Real* score_grad_Rk;  ///< gradient of scale * score
  Real* query_grad;     ///< nullptr: not computed
  int64_t* key_H;       ///< output: each hit's key, counted over all units
};
template <class Real>
void launch_rows_backward(const Tables<Real>& tables, const RowsBackward<Real>& job,
                          CUstream_st* stream);

/// Gradients of keys and values: sums over each key's hits, fewer than 2^32, in row order.
template <class Real>
struct TablesBackward {
  const Real *y_grad, *query;
  const int64_t* hit_H;     ///< hits sorted by key, then by row
  const int64_t* first_K1;  ///< where each key's hits begin, [u K + 1]
  const Real *weight_Rk, *score_grad_Rk;
  Real *keys_grad, *values_grad;
};
template <class Real>
void launch_tables_backward(const Tables<Real>& tables, const TablesBackward<Real>& job,
                            CUstream_st* stream);

/// scale_grad[i] = sum over the unit's hits of score_grad * score.
template <class Real>
void launch_scale_backward(const Tables<Real>& tables, const Real* score_grad_Rk,
                           const Real* score_Rk, Real* scale_grad_u, CUstream_st* stream);

}  // namespace shoal::memory_lookup_cuda
