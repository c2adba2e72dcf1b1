#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace shoal::testing {

/// While it lives, counts the bytes that CPU tensors made since hold. One at a time.
class CountedMemory : public c10::Allocator {
 public:
  CountedMemory() : inner_(c10::GetAllocator(c10::DeviceType::CPU)) {
    c10::SetAllocator(c10::DeviceType::CPU, this, kPriority);
  }
  ~CountedMemory() override { c10::SetAllocator(c10::DeviceType::CPU, inner_, kPriority); }

  int64_t held_bytes() const { return *held_; }

  c10::DataPtr allocate(size_t bytes) override {
    auto block = std::make_unique<Block>(inner_->allocate(bytes), bytes, held_);
    *held_ += static_cast<int64_t>(bytes);
    void* data = block->memory.get();
    return {data, block.release(), &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dest, const void* src, size_t count) const override {
    default_copy_data(dest, src, count);
  }

 private:
  static constexpr uint8_t kPriority = 255;

  struct Block {
    Block(c10::DataPtr memory, size_t bytes, std::shared_ptr<std::atomic<int64_t>> held)
        : memory(std::move(memory)), bytes(bytes), held(std::move(held)) {}
    c10::DataPtr memory;
    size_t bytes;
    std::shared_ptr<std::atomic<int64_t>> held;  // tensors may outlive the count
  };
  static void free_block(void* block) {
    const std::unique_ptr<Block> owned(static_cast<Block*>(block));
    *owned->held -= static_cast<int64_t>(owned->bytes);
  }

  c10::Allocator* inner_;
  std::shared_ptr<std::atomic<int64_t>> held_ = std::make_shared<std::atomic<int64_t>>(0);
};

}  // namespace shoal::testing
