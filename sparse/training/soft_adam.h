#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "parallel/gradients/step_tensors.h"

namespace shoal {

/// Takes the gradient of x, which is trained beside a weight, and sums it over the replicas. A
/// non-finite one makes the weight's gradient non-finite too, which skips the step; otherwise that
/// is unchanged.
inline torch::Tensor take_gradient(const torch::Tensor& x, const std::string& weight,
                                   StepTensors& tensors) {
  // On a rank whose experts got no rows it is undefined.
  const torch::Tensor gradient = x.grad().defined() ? x.grad() : torch::zeros_like(x);
  x.mutable_grad() = torch::Tensor();
  all_reduce(tensors.replicas(weight), gradient);
  const torch::Tensor first = tensors.gradient(weight).gradient.slice(0, 0, 1);
  first.mul_((gradient * 0).sum() + 1);
  return gradient;
}

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

}  // namespace shoal
