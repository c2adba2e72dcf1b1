#include "moe/experts/expert_bank.h"

#include <utility>

namespace shoal {
namespace {

const Registration<UnitBank, ExpertBank> registered_expert_bank{"plain",
                                                                "two-layer MLPs of equal width"};
const Registration<UnitBank, GatedExpertBank> registered_gated_expert_bank{
    "gated", "gated MLPs of equal width (SwiGLU)"};

}  // namespace

ExpertBank::ExpertBank(const Options& options, const Context& context, bool has_gate)
    : activation_(options.activation),
      placement_(context.place(std::vector<double>(static_cast<size_t>(options.count), 1.0))) {
  const int64_t width = context.width, hidden = options.hidden_at(width);
  const MlpInits inits = context.inits.value_or(xavier_inits(width, hidden));
  const auto add = [&](const char* name, at::IntArrayRef sizes, const Init& init) {
    return add_stacked_parameter(name, sizes, context.tensor_options, init,
                                 placement_.units_of_rank(context.rank));
  };
  if (has_gate) weights_.gate_weight = add("gate.weight", {width, hidden}, inits.fc1_weight);
  if (has_gate && options.bias) weights_.gate_bias = add("gate.bias", {hidden}, inits.bias);
  weights_.fc1_weight = add("fc1.weight", {width, hidden}, inits.fc1_weight);
  if (options.bias) weights_.fc1_bias = add("fc1.bias", {hidden}, inits.bias);
  weights_.fc2_weight = add("fc2.weight", {hidden, width}, inits.fc2_weight);
  if (options.bias) weights_.fc2_bias = add("fc2.bias", {width}, inits.bias);
}

std::optional<MlpForm> ExpertBank::mlp_form() const {
  return MlpForm{weights_.fc1_weight.size(2), activation_, weights_.fc1_bias.defined(),
                 weights_.gate_weight.defined()};
}

ExpertWeights ExpertBank::formed_weights() const {
  ExpertWeights weights = weights_;
  for (size_t i = 0; i < forms_.size(); ++i) {
    torch::Tensor& weight = weights.*ExpertWeights::members()[i];
    weight = formed(weight, forms_[i].get());
  }
  return weights;
}

std::vector<torch::Tensor> ExpertBank::form_leaves() const {
  std::vector<torch::Tensor> all;
  for (const auto& form : forms_) {
    if (!form) continue;
    for (const torch::Tensor& leaf : form->leaves()) all.push_back(leaf);
  }
  return all;
}

bool ExpertBank::set_form(const torch::Tensor& parameter, std::shared_ptr<const WeightForm> form) {
  for (size_t i = 0; i < forms_.size(); ++i) {
    if (!parameter.is_same(weights_.*ExpertWeights::members()[i])) continue;
    forms_[i] = std::move(form);
    return true;
  }
  return false;
}

std::vector<SparsePlace> ExpertBank::sparse_places() const {
  std::vector<SparsePlace> places;
  for (const auto& weight : {weights_.gate_weight, weights_.fc1_weight, weights_.fc2_weight}) {
    if (weight.defined()) places.push_back({weight, true, placement_.num_units()});
  }
  return places;
}

torch::Tensor ExpertBank::forward(const torch::Tensor& rows_RD, const UnitRows& rows_u) {
  return forward_weighted(rows_RD, rows_u, {});
}

torch::Tensor ExpertBank::forward_weighted(const torch::Tensor& rows_RD, const UnitRows& rows_u,
                                           const torch::Tensor& weight_R) {
  return expert_mlp(rows_RD, rows_u, formed_weights(), activation_, weight_R);
}

std::vector<UnitBank::ForwardWeighted> ExpertBank::split(int64_t num_parts) {
  const auto num_experts = weights_.fc1_weight.size(0);
  const std::vector<ExpertWeights> stacks = split_experts(formed_weights(), num_parts);
  std::vector<ForwardWeighted> parts;
  for (int64_t part = 0; part < num_parts; ++part) {
    const UnitRange range = part_of(num_experts, part, num_parts);
    parts.push_back(
        [this, range, stack = stacks[static_cast<size_t>(part)]](
            const torch::Tensor& rows_RD, const UnitRows& rows_u, const torch::Tensor& weight_R) {
          return expert_mlp(rows_RD, rows_u.part(range), stack, activation_, weight_R);
        });
  }
  return parts;
}

torch::Tensor ExpertBank::forward_local(const torch::Tensor& x_TD, const TokenRows& rows) {
  return expert_mlp_of_tokens(x_TD, rows, formed_weights(), activation_);
}

}  // namespace shoal
