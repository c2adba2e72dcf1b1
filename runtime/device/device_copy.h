#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal {

/// Copies between host and device that the host does not wait for where it need not. On the CPU
/// they copy nothing.

/// A host tensor, or these numbers, on `device`: by way of pinned memory, in the order of the
/// current stream.
torch::Tensor send_to(const torch::Tensor& host, c10::Device device);
torch::Tensor send_to(const std::vector<int64_t>& values, c10::Device device);

/// A tensor on its way to the host, in the order of the current stream.
class HostCopy {
 public:
  explicit HostCopy(const torch::Tensor& tensor);
  /// Contiguous, on the CPU. Blocks until the copy is there, not for work queued after it.
  const torch::Tensor& wait();
  /// How often the host has waited for a copy since the program began, for tests to count.
  static int64_t num_waits();

 private:
  torch::Tensor host_;
  std::optional<c10::Event> arrived_;  ///< none on the CPU, and once waited for
};

}  // namespace shoal
