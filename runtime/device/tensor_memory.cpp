#include "runtime/device/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <mutex>

namespace shoal {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLeastKept = size_t{64} << 10;

/// Precedes each tensor's bytes, since a deleter gets no size.
struct alignas(kAlignment) Header {
  size_t bytes;  ///< of the block that follows
};

/// The next multiple of an eighth of the power of two below.
size_t block_bytes(size_t bytes) {
  if (bytes < kLeastKept) return bytes;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

constexpr size_t kHugePage = size_t{2} << 20;

/// Memory that c10::free_cpu takes back. Throws c10::Error.
void* make_memory(size_t bytes) {
  void* memory = nullptr;
  if (bytes < kHugePage || posix_memalign(&memory, kHugePage, bytes) != 0) {
    return c10::alloc_cpu(bytes);
  }
  // Whole pages only, or the last one would hold more than was asked for. A kernel without huge
  // pages refuses, and the block is as any other.
  madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return memory;
}

class RecyclingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : take(block_bytes(bytes));
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }

  void copy_data(void* dest, const void* src, size_t count) const override {
    default_copy_data(dest, src, count);
  }

  TensorMemory report() {
    const std::lock_guard lock(mutex_);
    return memory_;
  }

  void begin_anew() {
    const std::lock_guard lock(mutex_);
    release_longest_kept(0);
    memory_.peak_bytes = memory_.held_peak_bytes = memory_.used_bytes;
  }

 private:
  static void give_back(void* data);

  void* take(size_t bytes) {
    if (void* kept = take_kept(bytes)) return kept;
    void* block = make_block(sizeof(Header) + bytes);
    static_cast<Header*>(block)->bytes = bytes;
    const std::lock_guard lock(mutex_);
    count_used(bytes);
    return static_cast<char*>(block) + sizeof(Header);
  }

  void* make_block(size_t bytes) {
    try {
      return make_memory(bytes);
    } catch (const c10::Error&) {
      release_kept();
      return make_memory(bytes);
    }
  }

  /// The smallest kept block that fits and is at most a quarter too large, or null.
  void* take_kept(size_t bytes) {
    if (bytes < kLeastKept) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto fitting = by_size_.lower_bound(bytes);
    if (fitting == by_size_.end() || fitting->first > bytes + bytes / 4) return nullptr;
    const auto found = std::prev(by_size_.upper_bound(fitting->first));  // the last of that size
    const Kept block = *found->second;
    kept_.erase(found->second);
    by_size_.erase(found);
    memory_.cached_bytes -= static_cast<int64_t>(block.bytes);
    ++memory_.reused;
    count_used(block.bytes);
    return block.data;
  }

  /// Under the lock.
  void count_used(size_t bytes) {
    memory_.used_bytes += static_cast<int64_t>(bytes);
    memory_.peak_bytes = std::max(memory_.peak_bytes, memory_.used_bytes);
    memory_.held_peak_bytes =
        std::max(memory_.held_peak_bytes, memory_.used_bytes + memory_.cached_bytes);
  }

  /// True if the block was kept.
  bool keep(void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    memory_.used_bytes -= static_cast<int64_t>(bytes);
    if (bytes < kLeastKept) return false;
    by_size_.emplace(bytes, kept_.insert(kept_.end(), {data, bytes}));
    memory_.cached_bytes += static_cast<int64_t>(bytes);
    release_longest_kept(memory_.peak_bytes);
    return true;
  }

  void release_kept() {
    const std::lock_guard lock(mutex_);
    release_longest_kept(0);
  }

  /// Under the lock: gives blocks back to the system until at most `limit` bytes are kept.
  void release_longest_kept(int64_t limit) {
    while (memory_.cached_bytes > limit) {
      const Kept longest = kept_.front();
      memory_.cached_bytes -= static_cast<int64_t>(longest.bytes);
      c10::free_cpu(static_cast<char*>(longest.data) - sizeof(Header));
      by_size_.erase(by_size_.lower_bound(longest.bytes));  // the first of its size
      kept_.pop_front();
    }
  }

  /// A block that no tensor holds.
  struct Kept {
    void* data;
    size_t bytes;
  };

  std::mutex mutex_;
  std::list<Kept> kept_;                                      // the longest kept first
  std::multimap<size_t, std::list<Kept>::iterator> by_size_;  // those of a size in the same order
  TensorMemory memory_;
};

// Tensors may outlive every static object, so the one instance is never destroyed.
RecyclingAllocator& recycling_allocator() {
  static auto& allocator = *new RecyclingAllocator;
  return allocator;
}

void RecyclingAllocator::give_back(void* data) {
  if (data == nullptr) return;
  void* block = static_cast<char*>(data) - sizeof(Header);
  if (!recycling_allocator().keep(data, static_cast<Header*>(block)->bytes)) c10::free_cpu(block);
}

// Above the default's 0, or LibTorch would ignore it.
constexpr uint8_t kPriority = 1;

}  // namespace

void recycle_tensor_memory() {
  c10::SetCPUAllocator(&recycling_allocator(), kPriority);
  TORCH_CHECK(c10::GetCPUAllocator() == &recycling_allocator(),
              "recycle_tensor_memory: an allocator of CPU tensors of a priority above ",
              int{kPriority}, " is set");
#ifdef __GLIBC__
  // malloc is to keep kernels' scratch memory, too; 32 MiB is the most that every glibc allows.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

TensorMemory tensor_memory() { return recycling_allocator().report(); }

void release_tensor_memory() {
  recycling_allocator().begin_anew();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace shoal
