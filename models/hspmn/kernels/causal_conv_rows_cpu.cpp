#include "models/hspmn/kernels/causal_conv_rows.h"

#include "runtime/device/cpu_clones.h"

// The loops below are plain so that the compiler vectorises them, once for each instruction set.
#pragma GCC optimize("O3", "fp-contract=fast", "no-trapping-math", "no-math-errno")

// S tokens of a sequence  C channels
namespace shoal {
namespace {

/// to = a x, or to += a x.
template <bool kAdds, class Real>
SHOAL_INLINE void scale_row(const Real* __restrict__ a, const Real* __restrict__ x,
                            Real* __restrict__ to, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c) to[c] = (kAdds ? to[c] : Real(0)) + a[c] * x[c];
}

/// to[t] = the sum over taps of w[2 - d] from[t + sign * d], d = 0, 1, 2, inside the sequence.
template <class Real>
SHOAL_INLINE void convolve(const ConvRows<Real>& rows, int64_t first, int64_t last, int64_t sign) {
  const int64_t C = rows.channels;
  for (int64_t t = first; t < last; ++t) {
    Real* to = rows.to_SC + t * C;
    scale_row<false>(rows.tap_3C + 2 * C, rows.from_SC + t * C, to, C);
    for (int64_t d = 1; d <= 2; ++d) {
      const int64_t other = t + sign * d;
      if (other < 0 || other >= rows.tokens) continue;
      scale_row<true>(rows.tap_3C + (2 - d) * C, rows.from_SC + other * C, to, C);
    }
  }
}

}  // namespace

template <class Real>
SHOAL_CPU_CLONES void convolve_rows(const ConvRows<Real>& rows, int64_t first, int64_t last) {
  convolve(rows, first, last, /*sign=*/-1);
}
template <class Real>
SHOAL_CPU_CLONES void convolve_rows_backward(const ConvRows<Real>& rows, int64_t first,
                                             int64_t last) {
  convolve(rows, first, last, /*sign=*/1);
}
template <class Real>
SHOAL_CPU_CLONES void add_tap_gradients(const TapGradient<Real>& gradient, int64_t first,
                                        int64_t last) {
  const int64_t C = gradient.channels;
  for (int64_t t = first; t < last; ++t) {
    for (int64_t d = 0; d <= 2 && d <= t; ++d) {
      scale_row<true>(gradient.grad_SC + t * C, gradient.x_SC + (t - d) * C,
                      gradient.grad_3C + (2 - d) * C, C);
    }
  }
}

template void convolve_rows(const ConvRows<float>&, int64_t, int64_t);
template void convolve_rows(const ConvRows<double>&, int64_t, int64_t);
template void convolve_rows_backward(const ConvRows<float>&, int64_t, int64_t);
template void convolve_rows_backward(const ConvRows<double>&, int64_t, int64_t);
template void add_tap_gradients(const TapGradient<float>&, int64_t, int64_t);
template void add_tap_gradients(const TapGradient<double>&, int64_t, int64_t);

}  // namespace shoal
