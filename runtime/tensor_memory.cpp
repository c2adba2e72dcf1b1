#include "runtime/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace shoal {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLeastKept = size_t{64} << 10;

/// Stands before each tensor's bytes, since a deleter is told no size.
struct alignas(kAlignment) Header {
  size_t bytes;  ///< of the block behind it
};

/// The next multiple of an eighth of the power of two below.
size_t block_bytes(size_t bytes) {
  if (bytes < kLeastKept) return bytes;
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
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

 private:
  static void give_back(void* data);

  void* take(size_t bytes) {
    if (void* kept = take_kept(bytes)) return kept;
    void* block = nullptr;
    try {
      block = c10::alloc_cpu(sizeof(Header) + bytes);
    } catch (const c10::Error&) {
      release_kept();
      block = c10::alloc_cpu(sizeof(Header) + bytes);
    }
    static_cast<Header*>(block)->bytes = bytes;
    return static_cast<char*>(block) + sizeof(Header);
  }

  void* take_kept(size_t bytes) {
    const std::lock_guard lock(mutex_);
    memory_.used_bytes += static_cast<int64_t>(bytes);
    memory_.peak_bytes = std::max(memory_.peak_bytes, memory_.used_bytes);
    if (bytes < kLeastKept) return nullptr;
    std::vector<void*>& kept = kept_[bytes];
    if (kept.empty()) return nullptr;
    void* data = kept.back();
    kept.pop_back();
    memory_.cached_bytes -= static_cast<int64_t>(bytes);
    ++memory_.reused;
    return data;
  }

  /// True if the block was kept.
  bool keep(void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    memory_.used_bytes -= static_cast<int64_t>(bytes);
    if (bytes < kLeastKept) return false;
    // What is kept would hold sizes that are not asked for any more.
    const int64_t room = memory_.peak_bytes - memory_.cached_bytes;
    if (static_cast<int64_t>(bytes) > room) release_kept_locked();
    kept_[bytes].push_back(data);
    memory_.cached_bytes += static_cast<int64_t>(bytes);
    return true;
  }

  void release_kept() {
    const std::lock_guard lock(mutex_);
    release_kept_locked();
  }

  void release_kept_locked() {
    for (auto& [bytes, blocks] : kept_) {
      for (void* data : blocks) c10::free_cpu(static_cast<char*>(data) - sizeof(Header));
      blocks.clear();
    }
    memory_.cached_bytes = 0;
  }

  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<void*>> kept_;
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

// Above the default's 0: what is set later with a lower priority is ignored.
constexpr uint8_t kPriority = 1;

}  // namespace

void recycle_tensor_memory() { c10::SetCPUAllocator(&recycling_allocator(), kPriority); }

TensorMemory tensor_memory() { return recycling_allocator().report(); }

}  // namespace shoal
