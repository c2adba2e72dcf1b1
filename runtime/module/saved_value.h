#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace shoal {

/// Passes one value that is not a tensor from a function's forward to its backward pass.
template <class Value>
struct SavedValue : torch::CustomClassHolder {
  explicit SavedValue(Value value) : value(std::move(value)) {}
  Value value;
};

template <class Value>
void save_value(torch::autograd::AutogradContext* ctx, Value value) {
  ctx->saved_data["value"] =
      c10::IValue::make_capsule(c10::make_intrusive<SavedValue<Value>>(std::move(value)));
}

template <class Value>
Value& saved_value(torch::autograd::AutogradContext* ctx) {
  const auto capsule = ctx->saved_data["value"].toCapsule();
  return static_cast<SavedValue<Value>*>(capsule.get())->value;
}

}  // namespace shoal
