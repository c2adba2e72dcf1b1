#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <string>
#include <type_traits>

struct CUstream_st;

/// GPUs that are emulated on the CPU, so that the tests of suites *Gpu show the logic of kernels
/// and of their host code where there is no GPU. Kernels, host code and tests are unchanged;
/// neither nvcc nor CUDA's headers are needed.
/// - Kernels: rewrite_kernels.cmake turns `kernel<<<grid, block, shared, stream>>>(arguments)` into
///   a call of `launch` and `__shared__` variables into pieces of a block's memory, include/ has
///   the rest of CUDA that they use, g++ compiles them. Threads run on fibers: one runs until it
///   waits for others, then any other does, of up to three blocks side by side.
/// - Devices: device.cpp takes the place of LibTorch's CUDA devices, which a process that loads
///   libtorch_cpu alone leaves empty; operators.cpp runs LibTorch's operators on the CPU, on CPU
///   tensors in the same memory. Ranks that are threads have a device each.
/// - Streams, events and schedules: streams.h. Accesses to memory: memory.h, accesses.h. Numbers
///   of launches, copies and waits: counts.h.
/// - cuSPARSE: cusparse_cpu.cpp has the functions that our host code calls.
///
/// It is stricter than a GPU where that is cheap:
/// - A launch fails, and names kernel, block and thread, where threads of a block wait at different
///   barriers or for a lane that has ended, at __trap(), and with more threads, blocks or shared
///   memory than there may be, or none. A load or store that is not aligned ends the program.
/// - Which thread goes on is drawn anew each time, and whether warps begin together or one begins
///   when those before it can go no further, so that a missing barrier gives wrong results;
///   --gtest_random_seed=N draws otherwise, and so does each turn of --gtest_repeat.
/// - Memory that nobody has written holds NaN and -1: what the allocator gives, what _grouped_mm
///   leaves out, and a block's, which for some blocks holds zeros. In front of it and behind are
///   guards, NaN too; a test fails when memory is freed whose guards are not whole.
/// - A test fails where the host reads the result of a copy, or writes pinned memory that is copied
///   from, before it has waited for that copy. Copies to the host hold -1 until they arrive, which
///   is as late as they may, or earlier, as drawn.
/// - In processes that use another stream than the default one, and in tests that ask
///   (watch_memory), a test fails where work uses a tensor's memory that other work writes, or
///   writes what other work uses, without an event or a wait of the host between them; where memory
///   is freed that another stream may still use; and where the host touches a GPU's memory.
/// - No operator takes tensors of the CPU and of the GPU, but for the CPU's scalars and indices, or
///   of two GPUs.
/// - cuSPARSE refuses sizes, strides, types and memory that do not fit, and workspaces that
///   were not prepared with the same arguments.
///
/// What it cannot show:
/// - Timing, occupancy, registers.
/// - Results of work in another order: it runs when it is queued, and only copies to the host and
///   transfers between ranks have late effects. What another order could change is known from the
///   clocks alone, by whole blocks of the allocator: work on two streams that uses two parts of one
///   block counts as a fault.
/// - What a host thread learns from another: all threads on a device count as one host.
/// - Graphs, and NCCL, whose calls tests/support/fake_nccl.h stands for.
/// - The memory model: a thread is only ever interrupted at a barrier. A missing fence, a sum
///   without atomicAdd, and other races between barriers go unseen.
/// - LibTorch's own kernels and cuSPARSE's, and the last bits of exp and erf: all are the CPU's.
namespace emulated_gpu {

using Place = std::source_location;

struct Extent {
  unsigned x, y, z;
  constexpr Extent(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr uint64_t count() const { return uint64_t{x} * y * z; }
};

struct Index {
  unsigned x, y, z;
};

struct Launch {
  Extent grid, block;
  size_t shared_bytes = 0;
  CUstream_st* stream = nullptr;
};

/// Runs `thread` once for each thread of the grid, one launch at a time.
/// Throws std::runtime_error, see above.
void launch(const char* kernel, const Launch& launch, const std::function<void()>& thread);

/// Sets whether operators that make the host wait for the GPU throw.
void refuse_waits(bool refuses);
/// Number of times that operators have made the host wait. Waits for events are counted by
/// counts.h.
int64_t num_waits();

/// The rest is for kernels. Ends the launch with an error.
[[noreturn]] void fail(const std::string& what);

/// Memory of the block: one piece for each place that asks.
void* shared(size_t bytes, const Place& place);
template <class Value>
Value& shared(const Place& place = Place::current()) {
  return *static_cast<Value*>(shared(sizeof(Value), place));
}
/// What the launch asked for.
void* dynamic_shared();

/// Waits for all threads of the block that have not ended.
void wait_for_block(const Place& place);

/// Values of the lanes of a warp.
class Lanes {
 public:
  Lanes(const std::byte (&bytes)[32][8], unsigned mask) : bytes_(bytes), mask_(mask) {}
  template <class Value>
  Value of(int lane) const {
    if ((mask_ >> lane & 1) == 0) fail("reads the value of a lane outside the mask");
    Value value;
    std::memcpy(&value, bytes_[lane], sizeof(Value));
    return value;
  }
  unsigned mask() const { return mask_; }

 private:
  const std::byte (&bytes_)[32][8];
  unsigned mask_;
};

/// Waits for the lanes of `mask`; what they gave, until the warp's next call but one.
Lanes exchange(unsigned mask, uint64_t value, const Place& place);
template <class Value>
Lanes exchange(unsigned mask, const Value& value, const Place& place) {
  static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(Value));
  return exchange(mask, bits, place);
}
int own_lane();

}  // namespace emulated_gpu

// NOLINTBEGIN: CUDA's names
using dim3 = emulated_gpu::Extent;
inline emulated_gpu::Index threadIdx{}, blockIdx{};
inline dim3 blockDim, gridDim;
// NOLINTEND
