#include "runtime/optimizers/lamb.h"

#include <torch/library.h>

#include <cmath>

#include "runtime/operator.h"

// num_matrices: stacked in dimension 0 of each weight, each with a trust ratio of its own.
// correction1 = 1 - beta1^t, correction2 = 1 - beta2^t. adapts: else all ratios are 1.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "lamb_(Tensor(a!)[] weights, Tensor[] gradients, Tensor(b!)[] m, Tensor(c!)[] v, "
      "int[] num_matrices, *, float lr, float beta1, float beta2, float correction1, "
      "float correction2, float eps, float weight_decay, bool adapts, bool trust_clip) -> ()");
}

namespace shoal {
namespace {

const Registration<Optimizer, Lamb> registered{"lamb", "Adam with a trust ratio for each matrix"};

}  // namespace

Lamb::Lamb(const Options& options, const Context& parameters)
    : Optimizer(options, parameters), options_(options) {
  add_state("m");
  add_state("v");
}

void Lamb::update(const Batch& batch, double learning_rate) {
  static const Operator<void(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                             at::IntArrayRef, double, double, double, double, double, double,
                             double, bool, bool)>
      op("shoal::lamb_");
  const double beta1 = options_.betas[0];
  const double beta2 = options_.betas[1];
  const auto count = static_cast<double>(steps());
  op(batch.weights, batch.gradients, batch.states[0], batch.states[1], batch.num_matrices,
     learning_rate, beta1, beta2, 1.0 - std::pow(beta1, count), 1.0 - std::pow(beta2, count),
     options_.eps, batch.weight_decay, batch.weight_decay != 0.0 || options_.always_adapt,
     options_.trust_clip);
}

}  // namespace shoal
