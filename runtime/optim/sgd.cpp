#include "runtime/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>

namespace shoal {

const Registration<Optimizer, Sgd> registered_sgd{"sgd", "gradient descent with momentum"};

void Sgd::Options::validate(Problems& problems) const {
  if (nesterov && momentum == 0.0) problems.add("nesterov", "needs a momentum above 0");
}

Sgd::Sgd(const Options& options, const Context& context)
    : Optimizer(options, context), options_(options) {
  if (options_.momentum > 0.0) add_state("m");
}

void Sgd::update(const std::vector<Batch>& batches, double learning_rate) {
  for (const Batch& batch : batches) {
    // From zeros, the first step needs no rule of its own.
    at::_fused_sgd_(batch.weights, batch.gradients,
                    batch.states.empty() ? at::TensorList() : at::TensorList(batch.states[0]),
                    batch.weight_decay, options_.momentum, learning_rate * batch.lr_scale,
                    /*dampening=*/0.0, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/false);
  }
}

}  // namespace shoal
