#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_grouped_mm.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/emulated_gpu/accesses.h"
#include "tests/support/emulated_gpu/counts.h"
#include "tests/support/emulated_gpu/device.h"

// LibTorch's operators on the emulated GPU: the CPU's, in the same memory.
namespace emulated_gpu {
namespace {

using c10::IValue;
using torch::Tensor;
using MaybeTensor = std::optional<Tensor>;

const c10::Device kCpu(c10::kCPU);

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
    TORCH_CHECK(pairs_.empty() || tensor.device() == device(), "tensors of two GPUs: ", device(),
                " and ", tensor.device());
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
  /// The device of the tensors; the current one without any.
  c10::Device device() const {
    return pairs_.empty() ? current_device() : pairs_[0].first.device();
  }

 private:
  static c10::Storage copy_of(const c10::Storage& storage) {
    c10::DataPtr copy = memory().allocate(storage.nbytes());
    if (storage.nbytes() > 0) std::memcpy(copy.get(), storage.data(), storage.nbytes());
    return {c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(copy), &memory(), true};
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

/// The value with each tensor replaced.
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
const std::set<std::string> kWaiting{
    "aten::_local_scalar_dense", "aten::_unique2", "aten::bincount",  "aten::equal",
    "aten::masked_select",       "aten::nonzero",  "aten::unique_dim"};

/// Whether there is a mask among indices: its length has to be counted.
bool has_mask(const IValue& value) {
  if (!value.isOptionalTensorList()) return false;
  for (const MaybeTensor& index : value.toOptionalTensorVector()) {
    if (index && (index->scalar_type() == torch::kBool || index->scalar_type() == torch::kByte)) {
      return true;
    }
  }
  return false;
}

/// Whether an operator launches work: views and changes of sizes do not.
bool is_work(const c10::FunctionSchema& schema) {
  static const std::set<std::string> kOfNoLaunch{"aten::_local_scalar_dense", "aten::resize_",
                                                 "aten::set_"};
  const auto is_view = [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  };
  const auto& results = schema.returns();
  return std::none_of(results.begin(), results.end(), is_view) &&
         !kOfNoLaunch.contains(schema.name());
}

/// Calls `visit` for the tensors in a value.
template <class Visit>
void for_tensors(const IValue& value, const Visit& visit) {
  if (value.isTensor()) visit(value.toTensor());
  if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorVector()) visit(tensor);
  }
  if (value.isOptionalTensorList()) {
    for (const MaybeTensor& tensor : value.toOptionalTensorVector()) {
      if (tensor) visit(*tensor);
    }
  }
}

void note(const Work& work, const Tensor& tensor, bool is_write) {
  if (!tensor.defined() || !tensor.is_cuda()) return;
  const void* first = tensor.storage().data();
  is_write ? note_write(work, first) : note_read(work, first);
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// A call of an operator on its way through the CPU's: its arguments are lent, its results given
/// back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : schema_(op.schema()), stack_(*stack) {
    for (IValue& value : arguments()) {
      values_.push_back(value);
      value = replaced(value, [&](const Tensor& tensor) { return lent_.lend(tensor); });
    }
  }

  /// Queues the work, with what it reads and writes, and lets the host wait if it has to.
  void queue() {
    if (!is_work(schema_) && !reads_value()) return;
    work_ = queue_work(schema_.name(), current_stream());
    for (size_t i = 0; i < values_.size(); ++i) {
      const bool is_write = writes(schema_.arguments()[i]);
      for_tensors(values_[i], [&](const Tensor& tensor) { note(*work_, tensor, is_write); });
    }
    if (!reads_value()) count_launch(schema_.name());
    if (!waits()) return;
    count_copy_to_host(false, sizeof(int64_t));
    host_waits(schema_.name());
  }

  void give_back() {
    for (IValue& value : std::span(stack_).last(schema_.returns().size())) {
      value = replaced(value, [&](const Tensor& tensor) { return lent_.give_back(tensor); });
      if (!work_) continue;
      for_tensors(value, [&](const Tensor& tensor) { note(*work_, tensor, true); });
    }
    lent_.give_back_sizes();
  }

  const Lent& lent() const { return lent_; }

 private:
  std::span<IValue> arguments() { return std::span(stack_).last(schema_.arguments().size()); }
  bool reads_value() const { return schema_.name() == "aten::_local_scalar_dense"; }
  bool waits() const {
    return kWaiting.contains(schema_.name()) ||
           std::any_of(values_.begin(), values_.end(), has_mask);
  }

  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  std::vector<IValue> values_;
  Lent lent_;
  std::optional<Work> work_;
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  Call call(op, stack);
  const OnDevice on_device(call.lent().device());
  const bool may_mix = name.starts_with("aten::index") || name.starts_with("aten::_index");
  TORCH_CHECK(may_mix || !call.lent().is_mixed(), name, ": tensors of the CPU and of the GPU");
  call.queue();
  const OpenMemory open;
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  call.give_back();
}

void count_copy(const Tensor& self, const Tensor& from) {
  const auto bytes = static_cast<int64_t>(from.nbytes());
  if (self.is_cuda() && from.is_cuda()) return count_launch("aten::copy_");
  if (self.is_cuda()) return count_copy_to_gpu(from.is_pinned(), bytes);
  count_copy_to_host(self.is_pinned(), bytes);
}

Tensor& copy(Tensor& self, const Tensor& from, bool non_blocking) {
  Lent lent;
  const Tensor lent_self = lent.lend(self), lent_from = lent.lend(from);
  const OnDevice on_device(lent.device());
  count_copy(self, from);
  const Work work = queue_work("aten::copy_", current_stream());
  note(work, from, false);
  note(work, self, true);
  if (self.is_cuda() != from.is_cuda() && !non_blocking) host_waits("aten::copy_");
  const at::AutoDispatchBelowADInplaceOrView guard;
  const OpenMemory open;
  if (self.is_cpu() && non_blocking) {
    copy_late(work, lent_self, lent_from.to(self.scalar_type()).expand_as(self));
  } else {
    lent_self.copy_(lent_from);
    if (from.is_pinned() && non_blocking) keep_pinned(work, from);
  }
  return self;
}

// Needs no look at the ends. What no group writes is not a number, as in all memory.
Tensor grouped_product(const Tensor& a, const Tensor& b, const MaybeTensor& end,
                       const MaybeTensor& bias, std::optional<at::ScalarType> type) {
  TORCH_CHECK(a.dim() == 2 && end && !bias,
              "_grouped_mm: the emulated GPU has rows in groups only");
  TORCH_CHECK(end->size(0) < 1024, "_grouped_mm: ", end->size(0), " groups, at most 1,023");
  Lent lent;
  const at::AutoDispatchBelowADInplaceOrView guard;
  const OnDevice on_device(a.device());
  count_launch("aten::_grouped_mm");
  const Work work = queue_work("aten::_grouped_mm", current_stream());
  for (const Tensor& factor : {a, b, *end}) note(work, factor, false);
  const OpenMemory open;
  const Tensor lent_end = lent.lend(*end);
  const Tensor product = at::_grouped_mm(lent.lend(a), lent.lend(b), lent_end, bias, type);
  TORCH_CHECK(!lent.is_mixed(), "_grouped_mm: tensors of the CPU and of the GPU");
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  int64_t last = 0;
  for (int64_t group = 0; group < end->size(0); ++group) {
    const int64_t first = last;
    last = lent_end[group].item<int64_t>();
    if (product.dim() == 3 && first == last) product[group].fill_(kNan);
  }
  if (product.dim() == 2) product.slice(0, last).fill_(kNan);
  const Tensor result = lent.give_back(product);
  note(work, result, true);
  return result;
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
         [](at::IntArrayRef sizes, Type type, Layout, Device device, Pinned,
            std::optional<at::MemoryFormat> format) -> Tensor {
           const OnDevice on_device(device.value_or(current_device()));
           return at::detail::empty_generic(sizes, &memory(), kKeys, c10::dtype_or_default(type),
                                            format);
         });
  m.impl("empty_strided",
         [](at::IntArrayRef sizes, at::IntArrayRef strides, Type type, Layout, Device device,
            Pinned) -> Tensor {
           const OnDevice on_device(device.value_or(current_device()));
           return at::detail::empty_strided_generic(sizes, strides, &memory(), kKeys,
                                                    c10::dtype_or_default(type));
         });
  m.impl("copy_", &copy);
  m.impl("record_stream", [](Tensor& tensor, c10::Stream stream) {
    c10::impl::VirtualGuardImpl(c10::kCUDA)
        .recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  });
  m.impl("_grouped_mm", &grouped_product);
  // Else LibTorch goes on to parts that are CUDA's alone.
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

}  // namespace
}  // namespace emulated_gpu
