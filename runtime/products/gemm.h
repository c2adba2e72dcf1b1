#pragma once

#include <cstdint>

namespace shoal {

/// One factor of a product: row-major, rows `stride` elements apart; the transpose if `transposed`.
template <class Real>
struct Factor {
  const Real* data;
  int64_t stride;
  bool transposed = false;
};

/// c [m, n] = a [m, k] b [k, n] + beta c. c is row-major, with rows `stride` elements apart; beta
/// is 0 or 1, and with beta 0 c need not be initialised. For CPU kernels that multiply tiles of
/// their own buffers; inside at::parallel_for it runs on the calling thread.
void gemm(int64_t m, int64_t n, int64_t k, Factor<float> a, Factor<float> b, float beta, float* c,
          int64_t stride);
void gemm(int64_t m, int64_t n, int64_t k, Factor<double> a, Factor<double> b, double beta,
          double* c, int64_t stride);

}  // namespace shoal
