#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/gradients/step_rule.h"
#include "runtime/module/parameter.h"
#include "runtime/module/weight_form.h"

namespace shoal {

/// Adam for one tensor that is trained beside a weight for a part of the training. Betas 0.9 and
/// 0.999, epsilon 1e-8, no weight decay. The state is freed with the tensor. The model's optimizer
/// does not train such tensors: they have their own learning rate, are projected after each update,
/// end early, and would change how gradients are clipped.
struct SoftAdam {
  torch::Tensor m, v;  ///< shaped like the tensor, [u matrices, ...]; undefined: no state

  /// Starts with a state of zeros, shaped like `like`.
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
    visit_rows(visitor, prefixes.m, weight, m);
    visit_rows(visitor, prefixes.v, weight, v);
  }

 private:
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8;
};

/// Base of step rules that train WeightForms, functions applied to sparse weights in each forward
/// pass, while they are soft: permutations while relaxed matrices, and cells while their scores are
/// trained. The base takes the forms' gradients, summed over the replicas of the weight, and saves
/// Adam's states. These gradients are neither measured nor clipped with those of the weights. A
/// subclass implements after_update(): it counts num_updates_, calls SoftAdam::update, projects,
/// makes forms hard when due, and calls follow_forms().
class SoftTraining : public StepRule {
 public:
  void before_norm(int64_t step, StepTensors& tensors) override;
  void visit_state(StateVisitor& visitor) override;
  void fit_to(const SavedNames& /*saved*/) override { follow_forms(); }
  void tensors_loaded() override { follow_forms(); }

 protected:
  /// A form, and Adam for its one trained tensor while it is soft.
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
  /// Gives soft forms Adam's state if they have none, and frees that of the others.
  void follow_forms();

  std::vector<Soft> soft_;
  int64_t num_updates_ = 0;

 private:
  Names names_;
};

}  // namespace shoal
