#pragma once

#include <torch/types.h>

#include <memory>
#include <utility>
#include <vector>

namespace shoal {

/// A differentiable function that a layer applies to a parameter in every forward pass; products
/// then use the result. Sparse training reorders rows or columns, or scales entries, by forms.
class WeightForm {
 public:
  virtual ~WeightForm() = default;
  /// Returns the tensor to multiply by; it has the parameter's shape.
  virtual torch::Tensor apply(const torch::Tensor& parameter) const = 0;
  /// Trained tensors of the form itself, beside the parameter.
  virtual std::vector<torch::Tensor> leaves() const { return {}; }
};

/// Several forms, applied one after the other.
class WeightForms : public WeightForm {
 public:
  explicit WeightForms(std::vector<std::shared_ptr<const WeightForm>> forms)
      : forms_(std::move(forms)) {}
  torch::Tensor apply(const torch::Tensor& parameter) const override {
    torch::Tensor formed = parameter;
    for (const auto& form : forms_) formed = form->apply(formed);
    return formed;
  }
  std::vector<torch::Tensor> leaves() const override {
    std::vector<torch::Tensor> all;
    for (const auto& form : forms_) {
      for (const torch::Tensor& leaf : form->leaves()) all.push_back(leaf);
    }
    return all;
  }

 private:
  std::vector<std::shared_ptr<const WeightForm>> forms_;
};

/// A module whose parameters may have a form (WeightForm).
class HasWeightForms {
 public:
  virtual ~HasWeightForms() = default;
  /// Applies `form` to this parameter from now on. Returns false if the module has no such
  /// parameter, or one that does not support forms.
  virtual bool set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) = 0;
  /// The leaves of all forms of the module.
  virtual std::vector<torch::Tensor> form_leaves() const = 0;
};

/// The parameter, after `form` if that is not null.
inline torch::Tensor formed(const torch::Tensor& parameter, const WeightForm* form) {
  return form == nullptr ? parameter : form->apply(parameter);
}

}  // namespace shoal
