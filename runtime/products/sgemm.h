#pragma once

#include <string>

/// The float32 matrix product of BLAS for the whole program: `mm` and `addmm` of LibTorch call it
/// too, since the dynamic linker finds libshoal before libtorch_cpu (programs link it first). Their
/// batched and matrix-vector products are other functions of BLAS and remain LibTorch's. On x86
/// CPUs with AVX-512 that are not Intel's it is oneDNN's, since the MKL inside LibTorch leaves
/// AVX-512 unused there, or, for few rows, multiply_few_rows; elsewhere, and where there is no
/// oneDNN, it is LibTorch's own.
///
/// Column-major, arguments as in BLAS. Uses OpenMP's threads; only the caller's inside a parallel
/// region, or if the product is small. oneDNN moves the stack pointer into the heap, below which a
/// signal's frame would overwrite it: handlers need a stack of their own (SA_ONSTACK), as
/// StopSignals has.
extern "C" void sgemm_(const char* a_op, const char* b_op, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* a_stride, const float* b,
                       const int* b_stride, const float* beta, float* c, const int* c_stride);

namespace shoal {

/// What computes the float32 products of LibTorch's `mm` here: "oneDNN 2.6.3" or "LibTorch".
std::string sgemm_library();
/// Whether oneDNN would compute them if it were installed.
bool misses_onednn();

}  // namespace shoal
