#pragma once

#include <torch/types.h>

#include <memory>
#include <utility>
#include <vector>

namespace shoal {

/// What products use in place of a parameter, made from it in every forward pass: its rows or
/// columns in another order, its cells weighed. Differentiable.
class WeightForm {
 public:
  virtual ~WeightForm() = default;
  /// Of the parameter's shape.
  virtual torch::Tensor apply(const torch::Tensor& parameter) const = 0;
  /// What is trained of the form itself, beside the parameter.
  virtual std::vector<torch::Tensor> leaves() const { return {}; }
};

/// Several forms, each of what the one before made.
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

/// A module some of whose parameters may have a form.
class HasWeightForms {
 public:
  virtual ~HasWeightForms() = default;
  /// From now on products use `form` of this parameter. False if the module has no such parameter,
  /// or none that may have a form.
  virtual bool set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) = 0;
  /// The leaves of its forms.
  virtual std::vector<torch::Tensor> form_leaves() const = 0;
};

/// The parameter, or what its form makes of it; `form` may be null.
inline torch::Tensor formed(const torch::Tensor& parameter, const WeightForm* form) {
  return form == nullptr ? parameter : form->apply(parameter);
}

}  // namespace shoal
