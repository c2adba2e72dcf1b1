#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/emulated_gpu/memory.h"
#include "tests/support/emulated_gpu/streams.h"

/// Which work uses which memory of the emulated GPUs, and whether the clocks order it.
namespace emulated_gpu {

/// From now to the end of the test, faults are found:
/// - Work that reads what other work writes, or writes what other work reads or writes, without a
///   wait that orders them.
/// - Memory that is freed before work on another stream that uses it is known to be done, unless
///   the tensor was recorded on that stream (record_stream).
/// - Memory of the GPU that the host touches.
/// A process watches by itself once it uses another stream than the default one, and in all tests
/// if the environment variable EMULATED_GPU_WATCH is set.
void watch_memory();

/// Adds a fault: a failure of the test unless a Faults exists.
void report_fault(const std::string& what);

/// Keeps faults, which do not fail the test then, for its own lifetime.
class Faults {
 public:
  Faults();
  ~Faults();
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
  std::vector<std::string> list() const;
  /// True if one of them contains all of these texts.
  bool has(const std::vector<std::string>& texts) const;
  std::string text() const;  ///< all of them
};

// ---- for the emulated GPU itself: addresses are of any byte of a block, or none of the GPUs'

/// A new block of the current stream.
std::byte* add_block(size_t bytes);
void remove_block(std::byte* first);
/// True if all of these bytes are of one block.
bool is_device_memory(const void* first, size_t bytes);
/// The block is used on the stream, too, and is given out again when that is done.
void record_on_stream(const void* at, size_t stream);

void note_read(const Work& work, const void* at);
void note_write(const Work& work, const void* at);

/// A launch, of which the accesses are noted when it has ended.
class WatchedLaunch {
 public:
  WatchedLaunch(const char* kernel, const CUstream_st* stream);
  ~WatchedLaunch();
  WatchedLaunch(const WatchedLaunch&) = delete;
  WatchedLaunch& operator=(const WatchedLaunch&) = delete;

 private:
  Work work_;
  TouchedMemory memory_;
};

}  // namespace emulated_gpu
