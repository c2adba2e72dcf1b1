#pragma once

#include "runtime/kernels/tensor_chunks.h"
#include "runtime/optim/lamb_step.h"

struct CUstream_st;

// M matrices  C chunks of them
/// CUDA kernels of the LAMB optimizer. `tensors` holds the lists weights, gradients, m, v (averages
/// of gradients and of squares). Pointers are to GPU memory; each call is queued on the stream.
namespace shoal::lamb_cuda {

/// Updates averages and weights at once, without trust ratios.
template <class Real>
void launch_plain(const TensorChunks& tensors, const LambFactors<Real>& factors, Real rate,
                  CUstream_st* stream);

/// Options of launch_measure for trust ratios.
struct Trust {
  bool is_wanted = false;  ///< false: only norms, since other ranks hold pieces of the matrices
  double learning_rate = 0.0;
  bool clips = false;  ///< ratios are at most 1
};
/// Updates the averages. Writes to `out` the rate of each matrix [M], which is the learning rate
/// times its trust ratio; or, unless `trust.is_wanted`, the squared norms of the matrix and of its
/// update [M, 2]. part_C2 is scratch memory.
template <class Real>
void launch_measure(const TensorChunks& tensors, const LambFactors<Real>& factors,
                    const Trust& trust, double* part_C2, double* out, CUstream_st* stream);
/// Updates the weights with the rate of each matrix. Does not read gradients.
template <class Real>
void launch_apply(const TensorChunks& tensors, const LambFactors<Real>& factors,
                  const double* rate_M, CUstream_st* stream);

}  // namespace shoal::lamb_cuda
