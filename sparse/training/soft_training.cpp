#include "sparse/training/soft_training.h"

#include <algorithm>
#include <string>

namespace shoal {
namespace {

/// Takes the gradient of x, which is trained beside a weight, and sums it over the replicas. If it
/// is not finite, makes the weight's gradient non-finite too, so that the step is skipped.
torch::Tensor take_gradient(const torch::Tensor& x, const std::string& weight,
                            StepTensors& tensors) {
  // On a rank whose experts got no rows it is undefined.
  const torch::Tensor gradient = x.grad().defined() ? x.grad() : torch::zeros_like(x);
  x.mutable_grad() = torch::Tensor();
  all_reduce(tensors.replicas(weight), gradient);
  const torch::Tensor first = tensors.gradient(weight).gradient.slice(0, 0, 1);
  first.mul_((gradient * 0).sum() + 1);
  return gradient;
}

bool is_soft(const WeightForm& form) { return !form.leaves().empty(); }

}  // namespace

void SoftTraining::before_norm(int64_t /*step*/, StepTensors& tensors) {
  for (Soft& soft : soft_) {
    if (!is_soft(*soft.form)) continue;
    soft.gradient = take_gradient(soft.form->leaves()[0], soft.weight.name, tensors);
  }
}

void SoftTraining::visit_state(StateVisitor& visitor) {
  const auto has_soft_form = [](const Soft& soft) { return is_soft(*soft.form); };
  if (std::ranges::any_of(soft_, has_soft_form)) visitor.integer(names_.updates, num_updates_);
  for (Soft& soft : soft_) {
    if (is_soft(*soft.form)) soft.adam.visit_state(visitor, soft.weight, names_.adam);
  }
}

void SoftTraining::follow_forms() {
  for (Soft& soft : soft_) {
    if (!is_soft(*soft.form)) {
      soft.adam.end();
      soft.gradient = torch::Tensor();
    } else if (!soft.adam.m.defined()) {
      soft.adam.begin(soft.form->leaves()[0].detach());
    }
  }
}

}  // namespace shoal
