#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "runtime/module/parameter.h"
#include "runtime/module/weight_form.h"
#include "sparse/training/soft_adam.h"

namespace shoal {

/// Trains what forms of sparse weights have of their own, a part of the training long: soft
/// permutations, scores of soft cells.
///
/// Each step their gradients, summed over the replicas of the weight, are taken for Adam, whose
/// state is here and not the optimizer's: it goes when a form is soft no more. They are neither
/// measured nor clipped with the gradients of weights.
class SoftTraining : public StepRule {
 public:
  void before_norm(int64_t step, StepTensors& tensors) override;
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& /*saved*/) override { follow_forms(); }
  void tensors_loaded() override { follow_forms(); }

 protected:
  /// A form that may still be soft, and then has one leaf.
  struct Soft {
    std::shared_ptr<const WeightForm> form;
    Parameter weight;
    SoftAdam adam = {};           ///< without a state when the form is not soft
    torch::Tensor gradient = {};  ///< of this step, summed over replicas
  };
  struct Names {
    SoftAdam::Prefixes adam;
    const char* updates;
  };

  template <class Form>
  SoftTraining(const std::vector<std::shared_ptr<Form>>& forms, const Names& names)
      : names_(names) {
    for (const auto& form : forms) soft_.push_back({form, form->weight()});
    follow_forms();
  }
  /// Gives soft forms Adam's state if they have none, takes it from the others.
  void follow_forms();

  std::vector<Soft> soft_;
  int64_t num_updates_ = 0;

 private:
  Names names_;
};

}  // namespace shoal
