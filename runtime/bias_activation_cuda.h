#pragma once

#include <cstdint>

#include "runtime/activation.h"

struct CUstream_st;

/// Kernel of bias_activation's forward pass. Pointers are to GPU memory; the call is queued on the
/// stream.
namespace shoal {

/// y = act(x + bias) over `numel` elements of [outer, num_bias, inner]; bias is nullptr for none.
/// The derivative goes to `derivative`, which may be x, unless that is nullptr.
template <class Real>
struct ActivationElements {
  const Real* x;
  const Real* bias;
  Real* y;
  Real* derivative;
  int64_t numel, num_bias, inner;
};

template <class Real>
void launch_bias_activation(Activation activation, const ActivationElements<Real>& elements,
                            CUstream_st* stream);

}  // namespace shoal
