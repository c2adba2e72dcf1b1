#pragma once

#include <string>

/// The float32 matrix product of BLAS for a program that links shoal_process: LibTorch's `mm` and
/// `addmm` call it too, since the dynamic linker finds the program's before that of libtorch_cpu.
/// Batched and matrix-vector products are other BLAS functions and remain LibTorch's. Calls oneDNN,
/// or multiply_few_rows for few rows, on AVX-512 CPUs that are not Intel's: LibTorch's MKL does not
/// use AVX-512 there. On other CPUs, or without oneDNN, calls LibTorch's sgemm_.
///
/// Column-major, arguments as in BLAS. Uses OpenMP's threads; small products, and calls inside a
/// parallel region, use the calling thread alone. oneDNN moves the stack pointer into the heap,
/// where a signal's frame would overwrite data: signal handlers need their own stack (SA_ONSTACK).
extern "C" void sgemm_(const char* a_op, const char* b_op, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* a_stride, const float* b,
                       const int* b_stride, const float* beta, float* c, const int* c_stride);

namespace shoal {

/// Name of the library behind LibTorch's float32 `mm` here: "oneDNN 2.6.3" or "LibTorch".
std::string sgemm_library();
/// True if oneDNN would be used here but none with OpenMP threads is installed.
bool misses_onednn();

}  // namespace shoal
