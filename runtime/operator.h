#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

namespace shoal {

/// One of our operators, to be found once: `static const Operator<Signature> op("shoal::top_k");`.
/// A call goes to the implementation for its tensors' device, past autograd: gradients are the
/// caller's.
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
