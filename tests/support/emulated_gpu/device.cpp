#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.h"

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

using c10::IValue;
using torch::Tensor;

const c10::Device kDevice(c10::kCUDA, 0);
const c10::Device kCpu(c10::kCPU);

// ---- memory

constexpr size_t kGuardBytes = 256;  // in front and behind
constexpr std::byte kGuard{0xa5}, kPoison{0xff};

struct Allocation {
  size_t bytes;
  std::byte* memory;  ///< guard, bytes, guard
};

void release(void* context) {
  const auto* allocation = static_cast<Allocation*>(context);
  const auto is_guard = [&](size_t first) {
    const std::byte* begin = allocation->memory + first;
    return std::all_of(begin, begin + kGuardBytes, [](std::byte b) { return b == kGuard; });
  };
  if (!is_guard(0) || !is_guard(kGuardBytes + allocation->bytes)) {
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
    std::fill_n(memory, bytes + 2 * kGuardBytes, kGuard);
    std::fill_n(memory + kGuardBytes, bytes, kPoison);
    return {memory + kGuardBytes, new Allocation{bytes, memory}, &release, kDevice};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};
Memory memory;

const c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

// ---- waits

/// Copies to the host that it need not wait for: they arrive when it does, and are -1 until then.
class LateCopies {
 public:
  void add(const Tensor& to, const Tensor& from) {
    const std::lock_guard lock(mutex_);
    copies_.emplace_back(to, from.clone());
    if (to.is_contiguous()) std::memset(to.mutable_data_ptr(), 0xff, to.nbytes());
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

/// Of operators, which LibTorch can be told to refuse; events are waited for without.
void host_waits(const std::string& name) {
  TORCH_CHECK(!refuses_waits, name, ": makes the host wait for the GPU");
  late_copies.arrive();
}

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

void refuse_waits(bool refuses) { refuses_waits = refuses; }

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
  c10::Allocator* getCUDADeviceAllocator() const override { return &emulated_gpu::memory; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace
}  // namespace at

namespace emulated_gpu {
namespace {

// ---- all operators but ours

/// The tensors of a call, and the CPU tensors that stand for them.
class Lent {
 public:
  /// A CPU tensor in the same memory.
  Tensor lend(const Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) {
      has_cpu_ = has_cpu_ || (tensor.defined() && tensor.dim() > 0);
      return tensor;
    }
    c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                         {tensor.storage().mutable_data(), kCpu}, c10::GetCPUAllocator(), true);
    Tensor lent = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    lent.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                      tensor.storage_offset());
    pairs_.emplace_back(tensor, lent);
    return lent;
  }

  /// Results: a tensor of the call itself, a view of one, or a copy with memory of its own.
  Tensor give_back(const Tensor& tensor) const {
    if (!tensor.defined()) return tensor;
    for (const auto& [own, lent] : pairs_) {
      if (lent.is_same(tensor)) return own;
    }
    for (const auto& [own, lent] : pairs_) {
      if (lent.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl()) {
        return on_device(own.storage(), tensor);
      }
    }
    return on_device(copy_of(tensor.storage()), tensor);
  }

  /// Sizes and memory of tensors that the operator has resized.
  void give_back_sizes() const {
    for (const auto& [own, lent] : pairs_) {
      c10::TensorImpl* impl = own.unsafeGetTensorImpl();
      if (lent.storage().data() != own.storage().data()) {
        impl->set_storage_keep_dtype(copy_of(lent.storage()));
      }
      if (lent.sizes() != own.sizes() || lent.strides() != own.strides()) {
        impl->set_sizes_and_strides(lent.sizes(), lent.strides(), lent.storage_offset());
      }
    }
  }

  bool is_mixed() const { return has_cpu_ && !pairs_.empty(); }

 private:
  static c10::Storage copy_of(const c10::Storage& storage) {
    c10::DataPtr copy = memory.allocate(storage.nbytes());
    if (storage.nbytes() > 0) std::memcpy(copy.get(), storage.data(), storage.nbytes());
    return {c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(copy), &memory, true};
  }
  static Tensor on_device(c10::Storage storage, const Tensor& like) {
    Tensor tensor =
        at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kKeys, like.dtype());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                        like.storage_offset());
    return tensor;
  }

  std::vector<std::pair<Tensor, Tensor>> pairs_;
  bool has_cpu_ = false;
};

/// The same value with each tensor replaced.
template <class Replace>
IValue replaced(const IValue& value, const Replace& replace) {
  if (value.isTensor()) return replace(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(replace(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) return kCpu;
  return value;
}

/// Operators whose result the host has to see.
const std::set<std::string> kWaiting{"aten::_local_scalar_dense", "aten::equal",
                                     "aten::masked_select", "aten::nonzero"};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Lent lent;
  for (IValue& value : std::span(*stack).last(op.schema().arguments().size())) {
    value = replaced(value, [&](const Tensor& tensor) { return lent.lend(tensor); });
  }
  const std::string& name = op.schema().name();
  const bool may_mix = name.starts_with("aten::index") || name.starts_with("aten::_index");
  if (kWaiting.contains(name)) host_waits(name);
  TORCH_CHECK(may_mix || !lent.is_mixed(), name, ": tensors of the CPU and of the GPU");
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  for (IValue& value : std::span(*stack).last(op.schema().returns().size())) {
    value = replaced(value, [&](const Tensor& tensor) { return lent.give_back(tensor); });
  }
  lent.give_back_sizes();
}

Tensor& copy(Tensor& self, const Tensor& from, bool non_blocking) {
  Lent lent;
  const Tensor lent_self = lent.lend(self), lent_from = lent.lend(from);
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (self.is_cuda() != from.is_cuda() && !non_blocking) host_waits("aten::copy_");
  if (self.is_cpu() && non_blocking) {
    late_copies.add(lent_self, lent_from.to(self.scalar_type()).expand_as(self));
  } else {
    lent_self.copy_(lent_from);
  }
  return self;
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  using Type = std::optional<at::ScalarType>;
  using Layout = std::optional<at::Layout>;
  using Device = std::optional<at::Device>;
  using Pinned = std::optional<bool>;
  m.impl("empty.memory_format",
         [](at::IntArrayRef sizes, Type type, Layout, Device, Pinned,
            std::optional<at::MemoryFormat> format) -> Tensor {
           return at::detail::empty_generic(sizes, &memory, kKeys, c10::dtype_or_default(type),
                                            format);
         });
  m.impl("empty_strided",
         [](at::IntArrayRef sizes, at::IntArrayRef strides, Type type, Layout, Device,
            Pinned) -> Tensor {
           return at::detail::empty_strided_generic(sizes, strides, &memory, kKeys,
                                                    c10::dtype_or_default(type));
         });
  m.impl("copy_", &copy);
}

}  // namespace
}  // namespace emulated_gpu
