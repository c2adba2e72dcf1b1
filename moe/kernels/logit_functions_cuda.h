#pragma once

#include <cstdint>

struct CUstream_st;

/// Kernels of moe/kernels/logit_functions.h. Pointers are to GPU memory; each call is queued on the
/// stream.
namespace shoal::logit_functions_cuda {

template <class Real>
struct Values {
  const Real* in;
  Real* out;  ///< as many as in, or one of each row
  int64_t num_rows, num_columns;
};
template <class Real>
void launch_sigmoid(const Values<Real>& values, CUstream_st* stream);
template <class Real>
void launch_softplus(const Values<Real>& values, CUstream_st* stream);
template <class Real>
void launch_logsumexp(const Values<Real>& values, CUstream_st* stream);

}  // namespace shoal::logit_functions_cuda
