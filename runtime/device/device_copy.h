#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal {

/// Copies between host and device with as few waits of the host as possible. No copies on the CPU.

/// Returns `host`, or `values` as an int64 tensor [n], on `device`: copied through pinned memory
/// without waiting, in the order of the current stream.
torch::Tensor send_to(const torch::Tensor& host, c10::Device device);
torch::Tensor send_to(const std::vector<int64_t>& values, c10::Device device);

/// A copy of a tensor to the host, begun by the constructor, in the order of the current stream.
class HostCopy {
 public:
  explicit HostCopy(const torch::Tensor& tensor);
  /// The copy, contiguous, on the CPU. Blocks until it is complete, not for work queued after it.
  const torch::Tensor& wait();
  /// Number of waits for a GPU's copy since the program started; tests limit it.
  static int64_t num_waits();

 private:
  torch::Tensor host_;
  std::optional<c10::Event> arrived_;  ///< none on the CPU, and after the wait
};

}  // namespace shoal
