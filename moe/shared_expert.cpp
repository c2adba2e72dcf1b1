#include "moe/shared_expert.h"

#include "moe/expert_bank.h"

namespace shoal {
namespace {

torch::Tensor as_stack_of_one(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.unsqueeze(0) : tensor;
}

}  // namespace

SharedExpert::SharedExpert(const Options& options, int64_t width,
                           const torch::TensorOptions& tensor_options)
    : activation_(options.activation) {
  const int64_t hidden = options.count * options.hidden;
  const Init weights = Init::xavier_uniform(width, options.hidden);
  const Init biases = Init::normal(kExpertBiasStdDev);
  weights_.fc1_weight = add_parameter("fc1.weight", {width, hidden}, tensor_options, weights);
  if (options.bias) weights_.fc1_bias = add_parameter("fc1.bias", {hidden}, tensor_options, biases);
  weights_.fc2_weight = add_parameter("fc2.weight", {hidden, width}, tensor_options, weights);
  if (options.bias) weights_.fc2_bias = add_parameter("fc2.bias", {width}, tensor_options, biases);
}

torch::Tensor SharedExpert::forward(const torch::Tensor& x_TD) const {
  const ExpertWeights stack{
      as_stack_of_one(weights_.fc1_weight), as_stack_of_one(weights_.fc1_bias),
      as_stack_of_one(weights_.fc2_weight), as_stack_of_one(weights_.fc2_bias)};
  return expert_mlp(x_TD, {x_TD.size(0)}, stack, activation_);
}

}  // namespace shoal
