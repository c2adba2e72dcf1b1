#pragma once

#include "runtime/kernels/tensor_chunks.h"
#include "runtime/optim/lamb_step.h"

struct CUstream_st;

/// Kernels of LAMB on the lists weights, gradients, m, v. Pointers are to GPU memory; each call is
/// queued on the stream.
namespace shoal::lamb_cuda {

/// Updates averages and weights at once, without trust ratios.
template <class Real>
void launch_plain(const TensorChunks& tensors, const LambFactors<Real>& factors, Real rate,
                  CUstream_st* stream);

/// Options for trust ratios in launch_measure.
struct Trust {
  bool is_wanted = false;
  double learning_rate = 0.0;
  bool clips = false;
};
/// Updates the averages. `out`: the rate of each matrix, its learning rate times its trust ratio
/// [M]; or, unless `trust.is_wanted`, the squared norms of matrix and update [M, 2]. part_C2:
/// scratch, two for each chunk.
template <class Real>
void launch_measure(const TensorChunks& tensors, const LambFactors<Real>& factors,
                    const Trust& trust, double* part_C2, double* out, CUstream_st* stream);
/// Updates the weights with the rate of each matrix. Does not read gradients.
template <class Real>
void launch_apply(const TensorChunks& tensors, const LambFactors<Real>& factors,
                  const double* rate_M, CUstream_st* stream);

}  // namespace shoal::lamb_cuda
