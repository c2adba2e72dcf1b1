#pragma once

#include <c10/core/Allocator.h>
#include <torch/types.h>

#include <string>

#include "tests/support/emulated_gpu/streams.h"

/// What operators.cpp, cusparse_cpu.cpp and tests need of device.cpp.
namespace emulated_gpu {

inline const c10::Device kDevice(c10::kCUDA, 0);  ///< the first one
inline const c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

/// Returns this thread's current device. A thread begins with the first one.
c10::Device current_device();
/// Makes a device current for its own lifetime.
class OnDevice {
 public:
  explicit OnDevice(c10::Device device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_;
};

/// Memory of the current device.
c10::Allocator& memory();

/// Called where an operator makes the host wait for the current stream, which LibTorch can be told
/// to refuse; events are waited for without.
void host_waits(const std::string& name);

/// A copy to the host that need not wait for it: it arrives late, and is -1 until then. Both
/// tensors are the CPU's.
void copy_late(const Work& work, const torch::Tensor& to, const torch::Tensor& from);
/// A copy from pinned memory: a fault if that has changed before the host has waited.
void keep_pinned(const Work& work, const torch::Tensor& from);

}  // namespace emulated_gpu
