#pragma once

#include <cstdint>

// S tokens of a sequence  C channels
namespace shoal {

/// Input sequence, taps [3, C] (weights of the token two before, one before and itself), output.
/// Tokens outside the sequence count as 0. A caller that has tokens before it prepends them.
template <class Real>
struct ConvRows {
  const Real* from_SC;
  const Real* tap_3C;
  Real* to_SC;
  int64_t tokens, channels;
};

/// Arrays for the gradient of the taps, which is added to grad_3C.
template <class Real>
struct TapGradient {
  const Real* grad_SC;
  const Real* x_SC;
  Real* grad_3C;
  int64_t tokens, channels;
};

// Loops of causal_conv over one thread's tokens [first, last). Each thread has its own grad_3C.

template <class Real>
void convolve_rows(const ConvRows<Real>& rows, int64_t first, int64_t last);
/// Input gradient, from = dy, to = dx: dx[t] = w[2] dy[t] + w[1] dy[t + 1] + w[0] dy[t + 2].
template <class Real>
void convolve_rows_backward(const ConvRows<Real>& rows, int64_t first, int64_t last);
template <class Real>
void add_tap_gradients(const TapGradient<Real>& gradient, int64_t first, int64_t last);

}  // namespace shoal
