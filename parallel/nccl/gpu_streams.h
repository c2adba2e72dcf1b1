#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace shoal {

/// A stream of CUDA's; only the functions below look into it.
struct GpuStream;

/// A point in the work of a stream; freed with its last owner, passed or not.
using GpuEvent = std::shared_ptr<void>;

/// What communicators ask of one GPU's streams. The plug-in gives CUDA's; tests give their own, on
/// CPU memory. Only `is_done` checks whether work is over, and no function blocks.
struct GpuStreams {
  c10::Device device = c10::Device(c10::DeviceType::CPU);  ///< where buffers live
  std::string pci_id;                                      ///< `0000:3B:00.0`
  /// Carries all collectives of the process. One stream for all groups: the kernels of two
  /// communicators at once may each wait for room on some GPU that the other holds.
  GpuStream* communication = nullptr;
  /// The current stream of the calling thread.
  std::function<GpuStream*()> current;
  /// An event after all work of the stream so far.
  std::function<GpuEvent(GpuStream* stream)> record;
  /// Later work of the stream waits for the event.
  std::function<void(GpuStream* stream, const GpuEvent& event)> wait;
  /// Throws if the GPU reports an error of work before.
  std::function<bool(const GpuEvent& event)> is_done;
  std::function<void(void* to, const void* from, size_t bytes, GpuStream* stream)> copy;
};

}  // namespace shoal
