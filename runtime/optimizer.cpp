#include "runtime/optimizer.h"

#include <algorithm>

#include "runtime/error.h"

namespace shoal {
namespace {

bool contains(const std::string& name, const std::string& part) {
  return name.find(part) != std::string::npos;
}

bool decays(const OptimizerOptions& options, const Parameter& parameter) {
  if (options.weight_decay == 0.0 || parameter.matrix_dims() < 2) return false;
  return std::none_of(options.no_decay.begin(), options.no_decay.end(),
                      [&](const std::string& part) { return contains(parameter.name, part); });
}

void check_names(const OptimizerOptions& options, const std::vector<Parameter>& parameters) {
  for (const std::string& part : options.no_decay) {
    const bool fits = std::any_of(parameters.begin(), parameters.end(),
                                  [&](const Parameter& p) { return contains(p.name, part); });
    if (!fits) throw ConfigError("optimizer.no_decay: no parameter's name contains '" + part + "'");
  }
}

void check_tensor(const Parameter& parameter, const torch::Tensor& first) {
  const torch::Tensor& tensor = parameter.tensor;
  TORCH_CHECK(tensor.is_contiguous(), "optimizer: ", parameter.name, " is not contiguous");
  TORCH_CHECK(tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble,
              "optimizer: ", parameter.name, " is ", tensor.scalar_type(),
              "; expected float32 or float64");
  TORCH_CHECK(tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device(),
              "optimizer: ", parameter.name, " is ", tensor.scalar_type(), " on ", tensor.device(),
              ", others are ", first.scalar_type(), " on ", first.device());
}

}  // namespace

void AdamOptions::validate(Problems& problems) const {
  if (betas.size() != 2) problems.add("betas", "expected two numbers");
}

Optimizer::Optimizer(const OptimizerOptions& options, const Context& parameters)
    : options_(options) {
  check_names(options, parameters);
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(parameters_),
               [](const Parameter& parameter) { return parameter.tensor.requires_grad(); });
  const auto middle = std::stable_partition(parameters_.begin(), parameters_.end(),
                                            [&](const Parameter& p) { return decays(options, p); });
  num_decaying_ = middle - parameters_.begin();
  for (const Parameter& parameter : parameters_) {
    check_tensor(parameter, parameters_.front().tensor);
    weights_.push_back(parameter.tensor.detach());
  }
  gradients_.resize(weights_.size());
}

void Optimizer::add_state(std::string kind) {
  std::vector<torch::Tensor> zeros;
  for (const torch::Tensor& weight : weights_) zeros.push_back(torch::zeros_like(weight));
  states_.emplace_back(std::move(kind), std::move(zeros));
}

Optimizer::Batch Optimizer::batch(int64_t begin, int64_t end, double weight_decay) const {
  const auto first = static_cast<size_t>(begin);
  const auto count = static_cast<size_t>(end - begin);
  Batch batch;
  batch.weights = at::TensorList(weights_).slice(first, count);
  batch.gradients = at::TensorList(gradients_).slice(first, count);
  for (const auto& [kind, tensors] : states_) {
    batch.states.push_back(at::TensorList(tensors).slice(first, count));
  }
  for (size_t i = first; i < first + count; ++i) {
    const Parameter& parameter = parameters_[i];
    batch.num_matrices.push_back(parameter.is_stacked() ? parameter.tensor.size(0) : 1);
  }
  batch.weight_decay = weight_decay;
  return batch;
}

void Optimizer::step(double learning_rate) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    gradients_[i] = parameters_[i].tensor.grad();
    TORCH_CHECK(gradients_[i].defined(), "optimizer: ", parameters_[i].name, " has no gradient");
    TORCH_CHECK(gradients_[i].sizes() == weights_[i].sizes() && gradients_[i].is_contiguous(),
                "optimizer: the gradient of ", parameters_[i].name, " must be contiguous ",
                weights_[i].sizes(), ", got ", gradients_[i].sizes());
  }
  ++steps_;
  const auto count = static_cast<int64_t>(parameters_.size());
  if (num_decaying_ > 0) update(batch(0, num_decaying_, options_.weight_decay), learning_rate);
  if (num_decaying_ < count) update(batch(num_decaying_, count, 0.0), learning_rate);
  std::fill(gradients_.begin(), gradients_.end(), torch::Tensor());
}

void Optimizer::visit_state(StateVisitor& visitor) {
  visitor.integer("optimizer.steps", steps_);
  for (auto& [kind, tensors] : states_) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& parameter = parameters_[i];
      visitor.tensor({"optimizer." + kind + "." + parameter.name, tensors[i],
                      parameter.is_stacked(), parameter.unit_ids});
    }
  }
}

}  // namespace shoal
