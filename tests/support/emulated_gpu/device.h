#pragma once

#include <c10/core/Allocator.h>
#include <torch/types.h>

#include <cstddef>
#include <string>

/// What operators.cpp and cusparse_cpu.cpp need of device.cpp.
namespace emulated_gpu {

inline const c10::Device kDevice(c10::kCUDA, 0);
inline const c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

c10::Allocator& memory();
/// Whether all of these bytes are of one piece of it.
bool is_device_memory(const void* first, size_t bytes);

/// Called where an operator makes the host wait, which LibTorch can be told to refuse; events are
/// waited for without.
void host_waits(const std::string& name);

/// A copy to the host that need not wait for it: it arrives when the host waits next, and is -1
/// until then. Both tensors are the CPU's.
void copy_late(const torch::Tensor& to, const torch::Tensor& from);

}  // namespace emulated_gpu
