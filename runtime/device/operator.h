#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

#include "runtime/device/real_types.h"

namespace shoal {

/// The tensor as an optional argument of an operator: nothing if it is undefined.
inline MaybeTensor optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

/// Handle of a LibTorch operator of this project, looked up once: `static const Operator<Signature>
/// op("shoal::top_k");`. A call runs the kernel of its tensors' device, bypassing autograd: the
/// caller provides gradients.
template <class Signature>
class Operator;

template <class Result, class... Args>
class Operator<Result(Args...)> {
 public:
  explicit Operator(const char* name)
      : handle_(c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Result(Args...)>()) {
  }

  Result operator()(Args... args) const {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return handle_.call(std::forward<Args>(args)...);
  }

 private:
  c10::TypedOperatorHandle<Result(Args...)> handle_;
};

}  // namespace shoal
