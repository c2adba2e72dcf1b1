#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstdint>

namespace shoal::testing {

/// While it lives, counts the bytes that CPU tensors made since hold. One at a time.
class CountedMemory : public c10::Allocator {
 public:
  CountedMemory() : before_(c10::GetAllocator(c10::DeviceType::CPU)), first_bytes_(held()) {
    c10::SetAllocator(c10::DeviceType::CPU, this, kPriority);
  }
  ~CountedMemory() override { c10::SetAllocator(c10::DeviceType::CPU, before_, kPriority); }

  int64_t held_bytes() const { return held() - first_bytes_; }

  c10::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes > 0) {
      auto* header = static_cast<Header*>(c10::alloc_cpu(sizeof(Header) + bytes));
      header->bytes = static_cast<int64_t>(bytes);
      held() += header->bytes;
      data = header + 1;
    }
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* dest, const void* src, size_t count) const override {
    default_copy_data(dest, src, count);
  }

 private:
  // That of recycle_tensor_memory, which a higher one would disable for later tests.
  static constexpr uint8_t kPriority = 1;

  /// Precedes each tensor's bytes, since a deleter is told no size.
  struct alignas(64) Header {
    int64_t bytes;
  };

  static std::atomic<int64_t>& held() {  // tensors may outlive the allocator
    static std::atomic<int64_t> bytes{0};
    return bytes;
  }

  static void give_back(void* data) {
    if (data == nullptr) return;
    Header* header = static_cast<Header*>(data) - 1;
    held() -= header->bytes;
    c10::free_cpu(header);
  }

  c10::Allocator* before_;
  int64_t first_bytes_;
};

}  // namespace shoal::testing
