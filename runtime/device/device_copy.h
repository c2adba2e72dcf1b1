#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal {

/// Copies between host and GPU with as few waits of the host as possible. If the device is the CPU,
/// contiguous tensors are not copied: the result shares memory with its source.

/// Returns the first argument on `device`; a vector becomes an int64 tensor [n]. A copy to a GPU
/// goes through pinned memory, in the order of the current stream, and does not wait.
torch::Tensor send_to(const torch::Tensor& host, c10::Device device);
torch::Tensor send_to(const std::vector<int64_t>& values, c10::Device device);

/// The work that was queued on a device's current stream when the object was made.
class QueuedWork {
 public:
  explicit QueuedWork(c10::Device device);
  /// Waits for this work, not for work queued after it. Any thread may call.
  void wait();

 private:
  c10::Event done_;
};

/// A copy of a tensor to the host, begun by the constructor, in the order of the current stream.
class HostCopy {
 public:
  explicit HostCopy(const torch::Tensor& tensor);
  /// Returns the copy, contiguous, on the CPU. Waits for the copy, not for work queued after it.
  const torch::Tensor& wait();
  /// Number of waits for a copy or other queued work since the program started; for tests.
  static int64_t num_waits();

 private:
  torch::Tensor host_;
  std::optional<QueuedWork> copy_;  ///< none on the CPU, and after the wait
};

}  // namespace shoal
