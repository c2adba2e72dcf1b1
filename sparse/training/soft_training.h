#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "runtime/module/parameter.h"
#include "runtime/module/weight_form.h"

namespace shoal {

/// Adam of a tensor that belongs to a weight and is trained for a part of the training only: its
/// state is not the optimizer's, and goes with it. Betas 0.9 and 0.999, epsilon 1e-8, no decay.
///
/// Soft parameters have a rate of their own, are projected behind each update and end before the
/// training does; an optimizer's shards are fixed at the start. A place in the one optimizer would
/// change how gradients are clipped, and thus results.
struct SoftAdam {
  torch::Tensor m, v;  ///< shaped like the tensor, [u, ...]; undefined without a state

  /// Starts with a state of zeros.
  void begin(const torch::Tensor& like) {
    m = torch::zeros_like(like);
    v = torch::zeros_like(like);
  }
  void end() { m = v = torch::Tensor(); }
  /// One update of x; `updates` is its number, from 1.
  void update(const torch::Tensor& x, const torch::Tensor& gradient, double lr, int64_t updates) {
    m.mul_(kBeta1).add_(gradient, 1.0 - kBeta1);
    v.mul_(kBeta2).addcmul_(gradient, gradient, 1.0 - kBeta2);
    const auto count = static_cast<double>(updates);
    const double rate = lr / (1.0 - std::pow(kBeta1, count));
    const double square_scale = 1.0 / (1.0 - std::pow(kBeta2, count));
    x.addcdiv_(m, (v * square_scale).sqrt().add_(kEps), -rate);
  }

  struct Prefixes {
    const char *m, *v;
  };
  /// Saves the state beside the weight, unit by unit for a stack.
  void visit_state(StateVisitor& visitor, const Parameter& weight, const Prefixes& prefixes) {
    torch::Tensor m_of_weight = weight.is_stacked() ? m : m[0];
    torch::Tensor v_of_weight = weight.is_stacked() ? v : v[0];
    visitor.tensor(state_like(prefixes.m, weight, m_of_weight));
    visitor.tensor(state_like(prefixes.v, weight, v_of_weight));
  }

 private:
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
};

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
