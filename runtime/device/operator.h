#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

namespace shoal {

/// For backward passes that autograd does not see into: a derivative of them would be lost in
/// silence. Throws TORCH_CHECK where one is asked for (create_graph).
inline void refuse_second_derivatives() {
  TORCH_CHECK(!at::GradMode::is_enabled(), "this function has no second derivatives");
}

/// Nothing for a tensor that is not defined, as operators take those that may be left out.
inline std::optional<at::Tensor> optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

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
