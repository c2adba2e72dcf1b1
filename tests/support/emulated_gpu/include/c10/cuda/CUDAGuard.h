#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <c10/cuda/CUDAStream.h>

namespace c10::cuda {

class CUDAGuard {
 public:
  explicit CUDAGuard(Device device) : guard_(checked(device)) {}

 private:
  static Device checked(Device device) {
    TORCH_CHECK(device.is_cuda() && device.has_index(), "not an emulated GPU: ", device);
    return device;
  }
  DeviceGuard guard_;
};

class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(const CUDAStream& stream) : guard_(stream.unwrap()) {}

 private:
  StreamGuard guard_;
};

}  // namespace c10::cuda
