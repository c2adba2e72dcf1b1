#include "models/blocks/gated_mlp.h"

#include <optional>

#include "runtime/kernels/bias_activation.h"

namespace shoal {

GatedMlpImpl::GatedMlpImpl(const MlpShape& shape, const MlpInits& inits,
                           const torch::TensorOptions& options) {
  const auto bias = shape.has_bias ? std::optional(inits.bias) : std::nullopt;
  const auto add = [&](const char* name, int64_t in, int64_t out, const Init& weight) {
    return register_module(name, Linear(in, out, options, weight, bias));
  };
  gate = add("gate", shape.width, shape.hidden, inits.fc1_weight);
  fc1 = add("fc1", shape.width, shape.hidden, inits.fc1_weight);
  fc2 = add("fc2", shape.hidden, shape.width, inits.fc2_weight);
}

torch::Tensor GatedMlpImpl::forward(const torch::Tensor& x) const {
  const torch::Tensor open = bias_activation(gate->forward(x), {}, Activation::kSilu);
  return fc2->forward(open * fc1->forward(x));
}

}  // namespace shoal
