#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

/// Helpers for sources that define autograd functions (torch::autograd::Function).
namespace shoal {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Call it at the start of a backward pass whose operations autograd does not record. Throws
/// TORCH_CHECK if second derivatives are requested (create_graph): they would silently be missing.
inline void refuse_second_derivatives() {
  TORCH_CHECK(!torch::GradMode::is_enabled(), "this function has no second derivatives");
}

/// Holds a value that is not a tensor between the forward and backward pass of a function: forward
/// calls save_value, backward saved_value. One value per call of the function.
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
