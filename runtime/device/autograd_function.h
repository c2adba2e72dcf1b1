#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

/// What sources need that define autograd functions.
namespace shoal {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// For backward passes outside autograd, whose own derivative would silently be missing. Throws
/// TORCH_CHECK if it is requested (create_graph).
inline void refuse_second_derivatives() {
  TORCH_CHECK(!torch::GradMode::is_enabled(), "this function has no second derivatives");
}

/// Passes one value that is not a tensor from a function's forward to its backward pass.
template <class Value>
struct SavedValue : torch::CustomClassHolder {
  explicit SavedValue(Value value) : value(std::move(value)) {}
  Value value;
};

template <class Value>
void save_value(AutogradContext* ctx, Value value) {
  ctx->saved_data["value"] =
      c10::IValue::make_capsule(c10::make_intrusive<SavedValue<Value>>(std::move(value)));
}

template <class Value>
Value& saved_value(AutogradContext* ctx) {
  const auto capsule = ctx->saved_data["value"].toCapsule();
  return static_cast<SavedValue<Value>*>(capsule.get())->value;
}

}  // namespace shoal
