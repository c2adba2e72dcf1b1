#include "runtime/optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>

namespace shoal {
namespace {

const Registration<Optimizer, AdamW> registered_adamw{"adamw", "Adam with decoupled weight decay"};

}  // namespace

AdamW::AdamW(const Options& options, const Context& context)
    : Optimizer(options, context), options_(options) {
  add_state("m");
  add_state("v");
}

void AdamW::update(const std::vector<Batch>& batches, double learning_rate) {
  for (const Batch& batch : batches) {
    const torch::Tensor count =
        torch::full({}, static_cast<double>(steps()), batch.weights[0].options().dtype(at::kFloat));
    const std::vector<torch::Tensor> counts(batch.weights.size(), count);
    at::_fused_adamw_(batch.weights, batch.gradients, batch.states[0], batch.states[1],
                      /*max_exp_avg_sqs=*/{}, counts, learning_rate * batch.lr_scale,
                      options_.betas[0], options_.betas[1], batch.weight_decay, options_.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
}

}  // namespace shoal
