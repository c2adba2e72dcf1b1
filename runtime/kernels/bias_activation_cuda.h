#pragma once

#include <cstdint>

#include "runtime/kernels/activation.h"

struct CUstream_st;

/// Kernel of bias_activation's forward pass. Pointers are to GPU memory; the call is queued on the
/// stream.
namespace shoal {

/// y = act(x + bias) over [rows, columns]: column c has bias[c], or row r bias[r % num_bias];
/// `bias` is nullptr for none. The derivative goes to `derivative`, which may be x, unless that is
/// nullptr.
template <class Real>
struct ActivationMatrix {
  const Real* x;
  const Real* bias;
  Real* y;
  Real* derivative;
  int64_t rows, columns, num_bias;
  bool bias_by_column;
};

template <class Real>
void launch_bias_activation(Activation activation, const ActivationMatrix<Real>& matrix,
                            CUstream_st* stream);

}  // namespace shoal
