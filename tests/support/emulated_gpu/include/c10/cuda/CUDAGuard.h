#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace c10::cuda {

/// There is one device.
struct CUDAGuard {
  explicit CUDAGuard(Device device) {
    TORCH_CHECK(device.is_cuda() && device.index() == 0, "not the emulated GPU: ", device);
  }
};

}  // namespace c10::cuda
