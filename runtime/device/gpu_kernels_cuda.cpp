#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#include "runtime/device/device.h"

// SHOAL_CUDA_ARCHITECTURES is set by cmake for this file alone: `80,90`.
extern "C" int shoal_describe_kernels(int ordinal, std::vector<int>* built_for) {
  *built_for = {SHOAL_CUDA_ARCHITECTURES};
  if (ordinal < 0) return 0;
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
  return 10 * major + minor;
}
