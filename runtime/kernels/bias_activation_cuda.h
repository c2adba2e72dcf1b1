#pragma once

#include <cstdint>

#include "runtime/kernels/activation.h"

struct CUstream_st;

/// CUDA kernel of act(x + bias), the fused activation of MLPs; forward pass only. Pointers are to
/// GPU memory; the call is queued on the stream.
namespace shoal {

/// y = act(x + bias) over [rows, columns]; `bias` [columns] may be nullptr. Writes the derivative
/// to `derivative` unless that is nullptr.
template <class Real>
struct ActivationMatrix {
  const Real* x;
  const Real* bias;
  Real* y;
  Real* derivative;
  int64_t rows, columns;
};

template <class Real>
void launch_bias_activation(Activation activation, const ActivationMatrix<Real>& matrix,
                            CUstream_st* stream);

}  // namespace shoal
