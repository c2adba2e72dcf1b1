#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "runtime/device/device_copy.h"

namespace shoal {

/// Host memory that a save copies its tensors to, and that its shards are written from. One block
/// of memory is kept for all saves: the next one may begin when this one is written.
///
/// Tensors of a GPU are copied to pinned memory, in the order of the current stream, and no copy
/// makes the host wait; `wait` waits for all together. If there is not enough pinned memory, saves
/// use pageable memory, after a warning: they are as good, but interrupt the training for longer.
///
/// Tensors of the CPU are copied at once, to pageable memory.
class Staging {
 public:
  /// Returns uint8 [bytes] in pinned memory. Throws c10::Error if there is not enough.
  using Allocate = std::function<torch::Tensor(int64_t bytes)>;
  Staging(Warn warn, Allocate allocate_pinned)
      : warn_(std::move(warn)), allocate_pinned_(std::move(allocate_pinned)) {}
  /// Allocates by LibTorch, which rounds pinned memory up to a power of two. Throws c10::Error if
  /// that is more than `available_bytes`.
  static torch::Tensor pinned_memory(int64_t bytes, int64_t available_bytes);

  /// A tensor and the place of its first byte, a multiple of its dtype's size.
  struct Part {
    torch::Tensor value;
    int64_t begin = 0;
  };
  /// Copies tensors, contiguous, into `bytes` of host memory. Those of the CPU may change as soon
  /// as this returns; those of a GPU may be changed by work queued later on the current stream.
  void copy(const std::vector<Part>& parts, int64_t bytes);
  /// Waits for the copies. Returns the memory's first byte. Any thread may call.
  const char* wait();

 private:
  Warn warn_;
  Allocate allocate_pinned_;
  torch::Tensor memory_;
  std::optional<QueuedWork> copies_;  ///< those from a GPU; none after the wait

  torch::Tensor allocate(int64_t bytes, bool is_pinned) const;
};

}  // namespace shoal
