#include "runtime/optim/lamb.h"

#include <torch/library.h>

#include <cmath>

#include "runtime/device/operator.h"

// num_matrices: stacked in dimension 0 of each weight, each with a trust ratio of its own.
// correction1 = 1 - beta1^t, correction2 = 1 - beta2^t. adapts: else all ratios are 1.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "lamb_(Tensor(a!)[] weights, Tensor[] gradients, Tensor(b!)[] m, Tensor(c!)[] v, "
      "int[] num_matrices, *, float lr, float beta1, float beta2, float correction1, "
      "float correction2, float eps, float weight_decay, bool adapts, bool trust_clip) -> ()");
  // Averages the gradients; squared norms of each weight and of its update: float64 [weights, 2].
  m.def(
      "lamb_measure_(Tensor[] weights, Tensor[] gradients, Tensor(a!)[] m, Tensor(b!)[] v, *, "
      "float beta1, float beta2, float correction1, float correction2, float eps, "
      "float weight_decay) -> Tensor");
  // rates: float64 [weights], the learning rate times the trust ratio.
  m.def(
      "lamb_apply_(Tensor(a!)[] weights, Tensor[] m, Tensor[] v, Tensor rates, *, "
      "float correction1, float correction2, float eps, float weight_decay) -> ()");
}

namespace shoal {
namespace {

const Registration<Optimizer, Lamb> registered_lamb{"lamb",
                                                    "Adam with a trust ratio for each matrix"};

}  // namespace

Lamb::Lamb(const Options& options, const Context& context)
    : Optimizer(options, context), options_(options) {
  add_state("m");
  add_state("v");
}

struct Lamb::Numbers {
  double learning_rate, beta1, beta2, correction1, correction2;
};

void Lamb::update(const Batch& batch, double learning_rate) {
  static const Operator<void(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                             at::IntArrayRef, double, double, double, double, double, double,
                             double, bool, bool)>
      op("shoal::lamb_");
  const double beta1 = options_.betas[0];
  const double beta2 = options_.betas[1];
  const auto count = static_cast<double>(steps());
  const Numbers numbers{learning_rate, beta1, beta2, 1.0 - std::pow(beta1, count),
                        1.0 - std::pow(beta2, count)};
  const bool adapts = batch.weight_decay != 0.0 || options_.always_adapt;
  if (adapts && shards() != nullptr) return update_pieces(batch, numbers);
  if (batch.weights.empty()) return;
  op(batch.weights, batch.gradients, batch.states[0], batch.states[1], batch.num_matrices,
     learning_rate, beta1, beta2, numbers.correction1, numbers.correction2, options_.eps,
     batch.weight_decay, adapts, options_.trust_clip);
}

void Lamb::update_pieces(const Batch& batch, const Numbers& numbers) {
  static const Operator<torch::Tensor(at::TensorList, at::TensorList, at::TensorList,
                                      at::TensorList, double, double, double, double, double,
                                      double)>
      measure("shoal::lamb_measure_");
  static const Operator<void(at::TensorList, at::TensorList, at::TensorList, const torch::Tensor&,
                             double, double, double, double)>
      apply("shoal::lamb_apply_");
  const bool is_empty = batch.weights.empty();
  torch::Tensor square_P2 =
      torch::zeros({0, 2}, torch::TensorOptions(torch::kFloat64).device(shards()->device()));
  if (!is_empty) {
    square_P2 = measure(batch.weights, batch.gradients, batch.states[0], batch.states[1],
                        numbers.beta1, numbers.beta2, numbers.correction1, numbers.correction2,
                        options_.eps, batch.weight_decay);
  }
  square_P2 = sum_over_pieces(square_P2, batch);
  if (is_empty) return;
  const torch::Tensor weight_P = square_P2.select(1, 0), update_P = square_P2.select(1, 1);
  torch::Tensor trust_P = (weight_P / update_P).sqrt();
  trust_P = torch::where((weight_P > 0).logical_and(update_P > 0), trust_P, 1.0);
  if (options_.trust_clip) trust_P = trust_P.clamp_max(1.0);
  apply(batch.weights, batch.states[0], batch.states[1], trust_P * numbers.learning_rate,
        numbers.correction1, numbers.correction2, options_.eps, batch.weight_decay);
}

}  // namespace shoal
