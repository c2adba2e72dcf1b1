#pragma once

#include <cstdint>

struct CUstream_st;

// T tokens  U units

/// Kernels of moe/kernels/row_softmax.h. Pointers are to GPU memory; each call is queued on the
/// stream.
namespace shoal::row_softmax_cuda {

template <class Real>
struct Rows {
  const Real* in_TU;
  const Real* gate_TU;  ///< backward only
  Real* out_TU;
  int64_t num_tokens, num_units;
};
template <class Real>
void launch_softmax(const Rows<Real>& rows, CUstream_st* stream);
/// out = gate * (in - sum(in * gate)).
template <class Real>
void launch_backward(const Rows<Real>& rows, CUstream_st* stream);

}  // namespace shoal::row_softmax_cuda
