#include "runtime/products/gemm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <torch/types.h>

#include <algorithm>
#include <climits>

// The program's BLAS (sgemm.h), or LibTorch's; weak, since not every build of LibTorch exports its
// own. A call through ATen costs a few microseconds more, which small tiles feel.
extern "C" __attribute__((weak)) void sgemm_(const char*, const char*, const int*, const int*,
                                             const int*, const float*, const float*, const int*,
                                             const float*, const int*, const float*, float*,
                                             const int*);
extern "C" __attribute__((weak)) void dgemm_(const char*, const char*, const int*, const int*,
                                             const int*, const double*, const double*, const int*,
                                             const double*, const int*, const double*, double*,
                                             const int*);

namespace shoal {
namespace {

template <class Real>
using Blas = void (*)(const char*, const char*, const int*, const int*, const int*, const Real*,
                      const Real*, const int*, const Real*, const int*, const Real*, Real*,
                      const int*);

template <class Real>
torch::Tensor view_of(Factor<Real> factor, int64_t rows, int64_t columns) {
  auto* data = const_cast<Real*>(factor.data);
  const auto options = torch::TensorOptions().dtype(c10::CppTypeToScalarType<Real>::value);
  return factor.transposed ? at::from_blob(data, {rows, columns}, {1, factor.stride}, options)
                           : at::from_blob(data, {rows, columns}, {factor.stride, 1}, options);
}

template <class Real>
void multiply(Blas<Real> blas, int64_t m, int64_t n, int64_t k, Factor<Real> a, Factor<Real> b,
              Real beta, Real* c, int64_t stride) {
  if (m == 0 || n == 0) return;
  const bool fits = std::max({m, n, k, a.stride, b.stride, stride}) <= INT_MAX;
  if (blas == nullptr || k == 0 || !fits) {
    const at::NoGradGuard no_grad;
    torch::Tensor out = view_of<Real>({c, stride}, m, n);
    at::addmm_out(out, out, view_of(a, m, k), view_of(b, k, n), beta, 1.0);
    return;
  }
  // Fortran reads row-major memory as the transpose: cᵀ = bᵀ aᵀ.
  const char* b_op = b.transposed ? "T" : "N";
  const char* a_op = a.transposed ? "T" : "N";
  const int rows = static_cast<int>(n), columns = static_cast<int>(m), inner = static_cast<int>(k);
  const int b_stride = static_cast<int>(b.stride), a_stride = static_cast<int>(a.stride);
  const int c_stride = static_cast<int>(stride);
  const Real alpha = 1;
  blas(b_op, a_op, &rows, &columns, &inner, &alpha, b.data, &b_stride, a.data, &a_stride, &beta, c,
       &c_stride);
}

}  // namespace

void gemm(int64_t m, int64_t n, int64_t k, Factor<float> a, Factor<float> b, float beta, float* c,
          int64_t stride) {
  multiply<float>(sgemm_, m, n, k, a, b, beta, c, stride);
}

void gemm(int64_t m, int64_t n, int64_t k, Factor<double> a, Factor<double> b, double beta,
          double* c, int64_t stride) {
  multiply<double>(dgemm_, m, n, k, a, b, beta, c, stride);
}

}  // namespace shoal
