#include "tests/support/emulated_gpu/device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>

#include "runtime/device/device.h"
#include "tests/support/emulated_gpu/accesses.h"
#include "tests/support/emulated_gpu/counts.h"
#include "tests/support/emulated_gpu/emulated_gpu.h"

// Replaces LibTorch's CUDA device by the emulated GPU, which emulated_gpu.h describes.
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

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, current_device()};
    std::byte* first = add_block(bytes);
    return {first, first, &release, current_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const OpenMemory open;
    std::memcpy(to, from, bytes);
  }

 private:
  static void release(void* first) { remove_block(static_cast<std::byte*>(first)); }
};

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device host(c10::kCPU);
    if (bytes == 0) return {nullptr, host};
    std::byte* first = allocate_pinned(bytes);
    return {first, new Allocation{first, bytes}, &release, host};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  struct Allocation {
    std::byte* first;
    size_t bytes;
  };
  static void release(void* context) {
    const auto* allocation = static_cast<Allocation*>(context);
    free_pinned(allocation->first, allocation->bytes);
    delete allocation;
  }
};

bool refuses_waits = false;
std::atomic<int64_t> wait_count{0};

// ---- what LibTorch asks its CUDA part

int index_of(c10::Device device) {
  return device.has_index() ? device.index() : current_device_index();
}

c10::Stream stream_of_number(size_t number) {
  const int device = device_of_stream(number);
  const bool is_default = number == default_stream(device);
  return c10::Stream(c10::Stream::UNSAFE, {c10::kCUDA, static_cast<c10::DeviceIndex>(device)},
                     is_default ? 0 : static_cast<c10::StreamId>(number));
}

size_t number_of(const c10::Stream& stream) {
  return stream.id() == 0 ? default_stream(stream.device_index())
                          : static_cast<size_t>(stream.id());
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kCUDA;
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = current_device();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < kNumDevices, "not an emulated GPU: ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) set_current_device_index(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kNumDevices; }

  c10::Stream getStream(c10::Device device) const override {
    return stream_of_number(current_stream_of(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of_number(default_stream(index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream_of_number(pool_stream(index_of(device)));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return stream_of_number(pool_stream(index_of(device)));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of_number(exchange_stream(number_of(stream)));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return handle_of(stream.id());
  }
  bool queryStream(const c10::Stream& stream) const override {
    return is_done(record_event(number_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    count_wait();
    wait_on_host(record_event(number_of(stream)));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    count_wait();
    wait_for_device(device);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    *static_cast<Event*>(*event) = record_event(number_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) wait_on_stream(number_of(stream), *static_cast<Event*>(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || is_done(*static_cast<Event*>(event));
  }
  void synchronizeEvent(void* event) const override {
    count_wait();
    if (event != nullptr) wait_on_host(*static_cast<Event*>(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_on_stream(data.get(), number_of(stream));
  }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

c10::Device current_device() {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(current_device_index())};
}

OnDevice::OnDevice(c10::Device device) : before_(current_device_index()) {
  if (device.has_index()) set_current_device_index(device.index());
}
OnDevice::~OnDevice() { set_current_device_index(before_); }

c10::Allocator& memory() {
  static Memory instance;
  return instance;
}

void host_waits(const std::string& name) {
  TORCH_CHECK(!refuses_waits, name, ": makes the host wait for the GPU");
  ++wait_count;
  count_wait();
  wait_on_host(record_event(current_stream()));
}

void copy_late(const Work& work, const Tensor& to, const Tensor& from) {
  const Tensor values = from.clone();
  const auto* first = static_cast<const std::byte*>(to.const_data_ptr());
  const size_t bytes = to.is_contiguous() ? to.nbytes() : 0;
  const bool is_closed = bytes > 0 && is_pinned_memory(first);
  if (bytes > 0) std::memset(to.mutable_data_ptr(), 0xff, bytes);  // NaN and -1
  if (is_closed) begin_copy_to_pinned(first, bytes);
  add_late_effect(work, Arrival::kOnHost, [=] {
    if (is_closed) end_copy_to_pinned(first, bytes);
    to.copy_(values);
  });
}

void keep_pinned(const Work& work, const Tensor& from) {
  const Tensor values = from.contiguous().clone();
  add_late_effect(work, Arrival::kAtLast, [values, from, name = work.name] {
    const Tensor now = from.contiguous();
    if (std::memcmp(values.const_data_ptr(), now.const_data_ptr(), now.nbytes()) == 0) return;
    report_fault("pinned memory is written before " + name +
                 ", which reads it, is known to be done");
  });
}

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
  c10::DeviceIndex deviceCount() const override { return emulated_gpu::kNumDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex current_device() const override {
    return emulated_gpu::current_device().index();
  }
  int getNumGPUs() const override { return emulated_gpu::kNumDevices; }
  bool isPinnedPtr(const void* data) const override { return emulated_gpu::is_pinned_memory(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static emulated_gpu::PinnedMemory instance;
    return &instance;
  }
  c10::Allocator* getCUDADeviceAllocator() const override { return &emulated_gpu::memory(); }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace
}  // namespace at
