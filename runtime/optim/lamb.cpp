#include "runtime/optim/lamb.h"

#include <torch/library.h>

#include <cmath>

#include "runtime/device/device_copy.h"
#include "runtime/device/operator.h"

// num_matrices: stacked in dimension 0 of each weight, each with a trust ratio of its own.
// factors: those of LambFactors, in order. adapts: else all ratios are 1.
TORCH_LIBRARY_FRAGMENT(shoal, m) {
  m.def(
      "lamb_(Tensor(a!)[] weights, Tensor[] gradients, Tensor(b!)[] m, Tensor(c!)[] v, "
      "int[] num_matrices, float[] factors, float lr, bool adapts, bool trust_clip) -> ()");
  // Averages the gradients; squared norms of each weight and of its update: float64 [weights, 2].
  m.def(
      "lamb_measure_(Tensor[] weights, Tensor[] gradients, Tensor(a!)[] m, Tensor(b!)[] v, "
      "float[] factors) -> Tensor");
  // rates: float64 [weights], the learning rate times the trust ratio.
  m.def(
      "lamb_apply_(Tensor(a!)[] weights, Tensor[] m, Tensor[] v, Tensor rates, float[] factors) "
      "-> ()");
}

namespace shoal {

const Registration<Optimizer, Lamb> registered_lamb{"lamb",
                                                    "Adam with a trust ratio for each matrix"};

Lamb::Lamb(const Options& options, const Context& context)
    : Optimizer(options, context), options_(options) {
  add_state("m");
  add_state("v");
}

void Lamb::update(const std::vector<Batch>& batches, double learning_rate) {
  const auto is_cut = [&](const Batch& batch) { return shards() != nullptr && adapts(batch); };
  torch::Tensor square_P2;
  if (shards() != nullptr) {
    square_P2 = torch::zeros({num_parameters(), 2},
                             torch::TensorOptions(at::kDouble).device(shards()->device()));
    for (const Batch& batch : batches) {
      if (!is_cut(batch)) continue;
      square_P2.index_copy_(0, send_to(batch.places, square_P2.device()), measure(batch));
    }
    shards()->sum(square_P2);
  }
  for (const Batch& batch : batches) {
    const double rate = learning_rate * batch.lr_scale;
    if (is_cut(batch)) {
      const torch::Tensor place_P = send_to(batch.places, square_P2.device());
      apply(batch, rate, square_P2.index_select(0, place_P));
    } else {
      update_whole(batch, rate);
    }
  }
}

std::array<double, 8> Lamb::factors(const Batch& batch) const {
  const auto count = static_cast<double>(steps());
  const double beta1 = options_.betas[0], beta2 = options_.betas[1];
  return {beta1,
          1.0 - beta1,
          beta2,
          1.0 - beta2,
          1.0 / (1.0 - std::pow(beta1, count)),
          1.0 / std::sqrt(1.0 - std::pow(beta2, count)),
          options_.eps,
          batch.weight_decay};
}

void Lamb::update_whole(const Batch& batch, double rate) const {
  static const Operator<void(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                             at::IntArrayRef, at::ArrayRef<double>, double, bool, bool)>
      op("shoal::lamb_");
  op(batch.weights, batch.gradients, batch.states[0], batch.states[1], batch.num_matrices,
     factors(batch), rate, adapts(batch), options_.trust_clip);
}

torch::Tensor Lamb::measure(const Batch& batch) const {
  static const Operator<torch::Tensor(at::TensorList, at::TensorList, at::TensorList,
                                      at::TensorList, at::ArrayRef<double>)>
      op("shoal::lamb_measure_");
  return op(batch.weights, batch.gradients, batch.states[0], batch.states[1], factors(batch));
}

void Lamb::apply(const Batch& batch, double rate, const torch::Tensor& square_P2) const {
  static const Operator<void(at::TensorList, at::TensorList, at::TensorList, const torch::Tensor&,
                             at::ArrayRef<double>)>
      op("shoal::lamb_apply_");
  const torch::Tensor weight_P = square_P2.select(1, 0), update_P = square_P2.select(1, 1);
  torch::Tensor trust_P = (weight_P / update_P).sqrt();
  trust_P = torch::where((weight_P > 0).logical_and(update_P > 0), trust_P, 1.0);
  if (options_.trust_clip) trust_P = trust_P.clamp_max(1.0);
  op(batch.weights, batch.states[0], batch.states[1], trust_P * rate, factors(batch));
}

}  // namespace shoal
