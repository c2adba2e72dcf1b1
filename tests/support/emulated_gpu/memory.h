#pragma once

#include <cstddef>
#include <vector>

/// Memory of the emulated GPUs and pinned memory of the host. Each block has pages of its own, so
/// that accesses are seen by page protection.
namespace emulated_gpu {

/// Returns `bytes` that hold the poison, between guards.
std::byte* allocate_device(size_t bytes);
/// True if the guards were whole.
bool free_device(std::byte* first, size_t bytes);

/// Returns pinned memory that holds the poison.
std::byte* allocate_pinned(size_t bytes);
bool is_pinned_memory(const void* at);
void free_pinned(std::byte* first, size_t bytes);
/// A copy to these bytes is under way: the host may not use them until it is over.
void begin_copy_to_pinned(const std::byte* first, size_t bytes);
void end_copy_to_pinned(const std::byte* first, size_t bytes);

/// From now on the memory is closed to the host: what it touches outside of an OpenMemory is a
/// fault. Kernels are seen as they touch blocks.
void close_memory();
void stop_closing_memory();

/// The memory is open while one exists: operators run on the host. Waits while a kernel runs.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

/// A block that a kernel has touched.
struct Touch {
  const std::byte* at;  ///< its first byte
  bool is_write;
};

/// While one exists no operator runs, and blocks are opened one by one as they are touched.
class TouchedMemory {
 public:
  TouchedMemory();
  ~TouchedMemory() { finish(); }
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;
  /// Ends the kernel; returns what it has touched.
  std::vector<Touch> finish();

 private:
  bool is_running_;
};

/// What was touched against these rules, since the last call.
struct StrayTouch {
  enum class Kind {
    kByHost,        ///< memory of a GPU, touched by the host
    kByKernel,      ///< memory of a GPU that is in no block, touched by a kernel
    kCopyOnItsWay,  ///< pinned memory that a copy is under way to
    kNotNoted,      ///< memory of a GPU, touched by a kernel that has touched too many blocks
  };
  const std::byte* at = nullptr;
  Kind kind = Kind::kByHost;
};
std::vector<StrayTouch> take_stray_touches();

}  // namespace emulated_gpu
