#include "moe/experts/shared_expert.h"

#include "moe/experts/expert_bank.h"
#include "runtime/options/automatic_values.h"

namespace shoal {
namespace {

const AutomaticValues<SharedExpert::Options> automatic_shared_width(ResolvedOn::kComparison);

}  // namespace

SharedExpert::SharedExpert(const Options& options, int64_t width,
                           const torch::TensorOptions& tensor_options,
                           const std::optional<MlpInits>& inits)
    : activation_(options.activation) {
  const int64_t hidden_of_one = options.hidden_at(width);
  const int64_t hidden = options.count * hidden_of_one;
  const MlpInits init = inits.value_or(xavier_inits(width, hidden_of_one));
  const auto add_layer = [&](const std::string& name, at::IntArrayRef sizes, torch::Tensor& weight,
                             torch::Tensor& bias) {
    const Init& first = name == "fc2" ? init.fc2_weight : init.fc1_weight;
    weight = add_parameter(name + ".weight", sizes, tensor_options, first);
    if (options.bias) bias = add_parameter(name + ".bias", {sizes[1]}, tensor_options, init.bias);
  };
  if (options.gated) {
    add_layer("gate", {width, hidden}, weights_.gate_weight, weights_.gate_bias);
  }
  add_layer("fc1", {width, hidden}, weights_.fc1_weight, weights_.fc1_bias);
  add_layer("fc2", {hidden, width}, weights_.fc2_weight, weights_.fc2_bias);
}

torch::Tensor SharedExpert::forward(const torch::Tensor& x_TD) const {
  const auto stack = weights_.changed([](const torch::Tensor& one) { return one.unsqueeze(0); });
  return expert_mlp(x_TD, {x_TD.size(0)}, stack, activation_);
}

}  // namespace shoal
