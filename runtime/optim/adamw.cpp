#include "runtime/optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>

#include <cmath>

namespace shoal {
namespace {

const Registration<Optimizer, AdamW> registered_adamw{"adamw", "Adam with decoupled weight decay"};

/// 1 - beta^t, without the digits that the difference would lose.
torch::Tensor bias_correction(const torch::Tensor& t, double beta) {
  return (t * std::log(beta)).expm1_().neg_();
}

}  // namespace

AdamW::AdamW(const Options& options, const Context& context)
    : Optimizer(options, context), options_(options) {
  add_state("m");
  add_state("v");
  if (options_.entry_steps) add_state("t");
}

void AdamW::update(const std::vector<Batch>& batches, double learning_rate) {
  for (const Batch& batch : batches) {
    if (options_.entry_steps) {
      update_by_age(batch, learning_rate * batch.lr_scale);
    } else {
      update_fused(batch, learning_rate * batch.lr_scale);
    }
  }
}

void AdamW::update_fused(const Batch& batch, double learning_rate) const {
  const torch::Tensor count =
      torch::full({}, static_cast<double>(steps()), batch.weights[0].options().dtype(at::kFloat));
  const std::vector<torch::Tensor> counts(batch.weights.size(), count);
  at::_fused_adamw_(batch.weights, batch.gradients, batch.states[0], batch.states[1],
                    /*max_exp_avg_sqs=*/{}, counts, learning_rate, options_.betas[0],
                    options_.betas[1], batch.weight_decay, options_.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

void AdamW::update_by_age(const Batch& batch, double learning_rate) const {
  const double beta1 = options_.betas[0], beta2 = options_.betas[1];
  for (size_t i = 0; i < batch.weights.size(); ++i) {
    const torch::Tensor &weight = batch.weights[i], &gradient = batch.gradients[i];
    const torch::Tensor &m = batch.states[0][i], &v = batch.states[1][i], &t = batch.states[2][i];
    t.add_(1);
    // One operation each: fused ones may round differently at the end of a thread's range.
    m.mul_(beta1).add_(gradient * (1.0 - beta1));
    v.mul_(beta2).add_((gradient * gradient).mul_(1.0 - beta2));
    const torch::Tensor root = (v / bias_correction(t, beta2)).sqrt_().add_(options_.eps);
    const torch::Tensor step = (m / bias_correction(t, beta1)).div_(root).mul_(learning_rate);
    weight.mul_(1.0 - learning_rate * batch.weight_decay).sub_(step);
  }
}

}  // namespace shoal
