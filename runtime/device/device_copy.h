#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal {

/// Copies between host and device with as few waits of the host as possible. On the CPU they copy
/// nothing.

/// A host tensor, or these numbers, on `device`: copied through pinned memory, in the order of the
/// current stream.
torch::Tensor send_to(const torch::Tensor& host, c10::Device device);
torch::Tensor send_to(const std::vector<int64_t>& values, c10::Device device);

/// A copy of a tensor to the host in progress, in the order of the current stream.
class HostCopy {
 public:
  explicit HostCopy(const torch::Tensor& tensor);
  /// The copy, contiguous, on the CPU. Blocks until it is complete, not for work queued after it.
  const torch::Tensor& wait();
  /// Number of waits of the host for a copy since the program started, for tests.
  static int64_t num_waits();

 private:
  torch::Tensor host_;
  std::optional<c10::Event> arrived_;  ///< none on the CPU, and after the wait
};

}  // namespace shoal
