#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"

struct CUstream_st;

// N rows  C width  R runs of kRunRows rows

/// CUDA kernels of layer norm and RMS norm (models/kernels/layer_norm.h). Pointers are to GPU
/// memory; calls are queued on the stream. Parameters and statistics of bfloat16 rows are float32.
namespace shoal::layer_norm_cuda {

template <class Real>
struct Norm {
  const Wide<Real>* weight_C;
  Wide<Real>*mean_N, *rstd_N;  ///< written by the forward pass
  int64_t num_rows, width;
  bool is_centred;  ///< false: RMS norm, whose means are 0
};

template <class Real>
struct Forward {
  const Wide<Real>* bias_C;  ///< may be nullptr
  double eps;
  const Real* x_NC;
  Real* y_NC;
};
template <class Real>
void launch_forward(const Norm<Real>& norm, const Forward<Real>& job, CUstream_st* stream);

inline constexpr int kRunRows = 32;

template <class Real>
struct Backward {
  const Real *x_NC, *grad_NC, *residual_NC;  ///< residual_NC is added to dx, may be nullptr
  Real* dx_NC;
  Wide<Real>* sum_R2C;  ///< gradients of weight and bias, summed over each run in order
};
template <class Real>
void launch_backward(const Norm<Real>& norm, const Backward<Real>& job, CUstream_st* stream);

}  // namespace shoal::layer_norm_cuda
