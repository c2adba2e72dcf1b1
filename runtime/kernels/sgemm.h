#pragma once

#include <string>

/// The float32 matrix product of BLAS for the whole program, LibTorch's operators included: the
/// dynamic linker binds their calls to this one. On x86 CPUs that are not Intel's it is oneDNN's,
/// since the MKL inside LibTorch leaves AVX-512 unused there; elsewhere, and where there is no
/// oneDNN, it is LibTorch's own.
///
/// Column-major, arguments as in BLAS.
extern "C" void sgemm_(const char* a_op, const char* b_op, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* a_stride, const float* b,
                       const int* b_stride, const float* beta, float* c, const int* c_stride);

namespace shoal {

/// What computes float32 products here: "oneDNN 2.6.3" or "LibTorch".
std::string sgemm_library();
/// Whether oneDNN would compute them, were it installed.
bool misses_onednn();

}  // namespace shoal
