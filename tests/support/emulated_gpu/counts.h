#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

/// Counts of the work that hosts give the emulated GPUs. A difference of two counts is the work
/// between two marks:
///   const Counts before = counts();
///   ...
///   const Counts made = counts() - before;
namespace emulated_gpu {

/// Copies of one kind.
struct Copies {
  int64_t number = 0, bytes = 0;
  bool operator==(const Copies&) const = default;
};

/// Work that one GPU was given.
struct Counts {
  /// Number of launches by name. A kernel of the plug-in is a launch, and so is each operator of
  /// LibTorch but views, allocations and copies between host and GPU, whatever a real GPU launches
  /// for it.
  std::map<std::string, int64_t> launches;
  Copies to_gpu, to_gpu_pinned;    ///< from pageable and from pinned memory of the host
  Copies to_host, to_host_pinned;  ///< values that the host reads (item, nonzero) are pageable
  int64_t waits = 0;  ///< host waits for the GPU: for events and streams, and inside of operators

  int64_t num_launches() const;
  int64_t num_pinned_copies() const { return to_gpu_pinned.number + to_host_pinned.number; }
  /// Without the launches of these names.
  Counts without(const std::vector<std::string>& names) const;
  Counts operator+(const Counts& other) const;
  Counts operator-(const Counts& before) const;
};

/// Returns the work that this thread's current GPU was given since the program started, by all
/// threads: LibTorch's backward pass runs in a thread of its own for each GPU.
Counts counts();
/// Returns the work that this thread's current GPU is given while `body` runs.
Counts counts_of(const std::function<void()>& body);

/// Returns a table with one row for each part: launches, copies and bytes of each kind, waits; and
/// below it the launches of each part by name.
std::string table_of(const std::vector<std::pair<std::string, Counts>>& parts);

/// The rest is for the emulated GPU itself. Work inside of a `Uncounted` is part of an operator
/// that was counted already.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
};
void count_launch(const std::string& name);
void count_copy_to_gpu(bool is_pinned, int64_t bytes);
void count_copy_to_host(bool is_pinned, int64_t bytes);
void count_wait();

/// The number of GPUs, and the index of the one that is current on this thread.
inline constexpr int kNumDevices = 4;
int current_device_index();
void set_current_device_index(int index);

}  // namespace emulated_gpu
