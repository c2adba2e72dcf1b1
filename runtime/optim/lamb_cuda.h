#pragma once

#include "runtime/device/tensor_chunks_cuda.h"
#include "runtime/optim/lamb_step.h"

struct CUstream_st;

/// Kernels of LAMB. Pointers are to GPU memory; each call is queued on the stream.
namespace shoal::lamb_cuda {

struct Trust {
  double learning_rate;
  bool clips;
};

/// Lists of `tensors`: weights, gradients, m, v.
///
/// Averages and applies at once, without trust ratios.
template <class Real>
void launch_plain(const TensorChunks& tensors, const LambFactors<Real>& factors, Real rate,
                  CUstream_st* stream);
/// Averages, then a trust ratio for each matrix, then applies. part_C2: scratch, two for each
/// chunk; rate_M: scratch, one for each matrix.
template <class Real>
void launch_adaptive(const TensorChunks& tensors, const LambFactors<Real>& factors,
                     const Trust& trust, double* part_C2, Real* rate_M, CUstream_st* stream);

// The two halves of launch_adaptive, for pieces of matrices.
/// Averages; sum_M2: squared norms of each matrix and of its update. part_C2: scratch.
template <class Real>
void launch_measure(const TensorChunks& tensors, const LambFactors<Real>& factors, double* part_C2,
                    double* sum_M2, CUstream_st* stream);
/// rate_M: of each matrix, the trust ratio included. Gradients are not read.
template <class Real>
void launch_apply(const TensorChunks& tensors, const LambFactors<Real>& factors,
                  const double* rate_M, CUstream_st* stream);

}  // namespace shoal::lamb_cuda
