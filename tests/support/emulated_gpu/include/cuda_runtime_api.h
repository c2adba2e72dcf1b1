#pragma once

#include "tests/support/emulated_gpu/counts.h"

/// The emulated GPUs report the compute capability of Hoppers.
enum cudaError_t { cudaSuccess };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor };

inline cudaError_t cudaGetDevice(int* device) {
  *device = emulated_gpu::current_device_index();
  return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 9;
  return cudaSuccess;
}
