#include "tests/support/emulated_gpu/device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/device.h"
#include "tests/support/emulated_gpu/emulated_gpu.h"

// LibTorch's CUDA device, taken by the emulated GPU: emulated_gpu.h tells the whole.
namespace shoal {

/// In place of libshoal.so's, for all that asks in this program.
DeviceChoice resolve_device(const std::string& name, const GpuPlace&, const DevicePlaces&) {
  if (name == "cpu") return {c10::Device(c10::kCPU), "run.device is cpu"};
  return {c10::Device(c10::kCUDA, 0), "the emulated GPU"};
}

}  // namespace shoal

namespace emulated_gpu {
namespace {

using torch::Tensor;

// ---- memory

constexpr size_t kGuardBytes = 256;  // in front and behind
constexpr uint16_t kGuard = 0xfff5;  // as part of any type a NaN or negative, but not the poison
constexpr int kPoison = 0xff;        // NaN and -1

struct Allocation {
  size_t bytes;
  std::byte* memory;  ///< guard, bytes, guard
};

/// Where memory is that has not been freed.
class LiveMemory {
 public:
  void add(const std::byte* first, size_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_[first] = bytes;
  }
  void remove(const std::byte* first) {
    const std::lock_guard lock(mutex_);
    bytes_.erase(first);
  }
  bool has(const std::byte* first, size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto found = bytes_.upper_bound(first);
    if (found == bytes_.begin()) return false;
    --found;
    const auto offset = static_cast<size_t>(first - found->first);
    return offset <= found->second && bytes <= found->second - offset;
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, size_t> bytes_;  ///< by their first
};

LiveMemory& live_memory() {
  static auto* instance = new LiveMemory;  // tensors may outlive static objects
  return *instance;
}

void write_guard(std::byte* to) {
  for (size_t i = 0; i < kGuardBytes; i += sizeof(kGuard)) {
    std::memcpy(to + i, &kGuard, sizeof(kGuard));
  }
}

bool is_guard(const std::byte* from) {
  std::byte guard[kGuardBytes];
  write_guard(guard);
  return std::memcmp(from, guard, kGuardBytes) == 0;
}

void release(void* context) {
  const auto* allocation = static_cast<Allocation*>(context);
  live_memory().remove(allocation->memory + kGuardBytes);
  if (!is_guard(allocation->memory) ||
      !is_guard(allocation->memory + kGuardBytes + allocation->bytes)) {
    ADD_FAILURE() << "GPU memory of " << allocation->bytes << " bytes was written outside of it";
  }
  c10::free_cpu(allocation->memory);
  delete allocation;
}

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, kDevice};
    auto* memory = static_cast<std::byte*>(c10::alloc_cpu(bytes + 2 * kGuardBytes));
    write_guard(memory);
    std::memset(memory + kGuardBytes, kPoison, bytes);
    write_guard(memory + kGuardBytes + bytes);
    live_memory().add(memory + kGuardBytes, bytes);
    return {memory + kGuardBytes, new Allocation{bytes, memory}, &release, kDevice};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

// ---- waits

class LateCopies {
 public:
  void add(const Tensor& to, const Tensor& from) {
    const std::lock_guard lock(mutex_);
    copies_.emplace_back(to, from.clone());
    if (to.is_contiguous()) std::memset(to.mutable_data_ptr(), kPoison, to.nbytes());
  }
  void arrive() {
    const std::lock_guard lock(mutex_);
    for (const auto& [to, from] : copies_) to.copy_(from);
    copies_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<Tensor, Tensor>> copies_;  ///< of the CPU
};
LateCopies late_copies;

bool refuses_waits = false;
std::atomic<int64_t> wait_count{0};

// ---- what LibTorch asks its CUDA part

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kCUDA;
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getDefaultStream(c10::Device) const override { return getStream(kDevice); }
  c10::Stream exchangeStream(c10::Stream) const override { return getStream(kDevice); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  // All work is done when it is queued.
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    late_copies.arrive();
    return true;
  }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { late_copies.arrive(); }
  void synchronizeEvent(void*) const override { late_copies.arrive(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { late_copies.arrive(); }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

c10::Allocator& memory() {
  static Memory instance;
  return instance;
}

bool is_device_memory(const void* first, size_t bytes) {
  return live_memory().has(static_cast<const std::byte*>(first), bytes);
}

void host_waits(const std::string& name) {
  TORCH_CHECK(!refuses_waits, name, ": makes the host wait for the GPU");
  ++wait_count;
  late_copies.arrive();
}

void copy_late(const Tensor& to, const Tensor& from) { late_copies.add(to, from); }

void refuse_waits(bool refuses) { refuses_waits = refuses; }

int64_t num_waits() { return wait_count; }

}  // namespace emulated_gpu

namespace at {
namespace {

struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return &emulated_gpu::memory(); }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace
}  // namespace at
