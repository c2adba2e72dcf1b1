#pragma once

#include <cstdint>

#include "runtime/device/bfloat16.h"

struct CUstream_st;

// B sequences  N heads  S tokens  H head width

/// CUDA kernel of rotary position embedding (models/decoder/rotary.h). Pointers are to GPU memory;
/// the call is queued on the stream.
namespace shoal::rotary_cuda {

struct Heads {
  int64_t sequences, heads, tokens, half;  ///< B, N, S, H / 2
  int64_t stride_B, stride_N, stride_S;    ///< of x, multiples of 4
};

template <class Real>
struct Rotate {
  const Real* x_BNSH;
  Real* y_BNSH;                ///< contiguous
  const Wide<Real>*cos, *sin;  ///< [S, H / 2], or [B, S, H / 2] if has_own_angles
  bool has_own_angles, is_inverse;
};
template <class Real>
void launch(const Heads& heads, const Rotate<Real>& job, CUstream_st* stream);

}  // namespace shoal::rotary_cuda
