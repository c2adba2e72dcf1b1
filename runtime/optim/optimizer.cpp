#include "runtime/optim/optimizer.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace shoal {
namespace {

bool contains(const std::string& name, const std::string& part) {
  return name.find(part) != std::string::npos;
}

/// Decay of a parameter that no rule gives one.
double default_decay(const OptimizerOptions& options, const Parameter& parameter) {
  const bool is_exempt = std::ranges::any_of(options.no_decay, [&](const std::string& part) {
    return contains(whole_name(parameter), part);
  });
  return is_exempt || parameter.matrix_dims() < 2 ? 0.0 : options.weight_decay;
}

void check_names(const OptimizerOptions& options, const std::vector<Parameter>& parameters) {
  for (const std::string& part : options.no_decay) {
    const bool fits =
        std::ranges::any_of(parameters, [&](const Parameter& p) { return contains(p.name, part); });
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

Optimizer::Optimizer(const OptimizerOptions& options, const Context& context)
    : options_(options), shards_(context.shards) {
  // A rank's pieces need not hold what the options name.
  if (shards_ == nullptr) {
    check_names(options, context.parameters);
    check_rules(options.rules, context.parameters, context.buffers);
  }
  for (const Parameter& parameter : context.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    Batch& batch = batch_for(parameter);
    batch.places.push_back(num_parameters());
    batch.weights.push_back(parameter.tensor.detach());
    batch.num_matrices.push_back(parameter.is_stacked() ? parameter.tensor.size(0) : 1);
    parameters_.push_back(parameter);
    check_tensor(parameter, parameters_.front().tensor);
  }
  const bool has_any = shards_ != nullptr || context.parameters.empty() || !parameters_.empty();
  if (!has_any) throw ConfigError("optimizer.rules: no parameter is left to train");
}

Optimizer::Batch& Optimizer::batch_for(const Parameter& parameter) {
  const ParameterRule settings = settings_of(options_.rules, parameter);
  const double weight_decay = settings.weight_decay.value_or(default_decay(options_, parameter));
  const double lr_scale = settings.lr_scale.value_or(1.0);
  const auto found = std::ranges::find_if(batches_, [&](const Batch& batch) {
    return batch.weight_decay == weight_decay && batch.lr_scale == lr_scale;
  });
  if (found != batches_.end()) return *found;
  Batch& batch = batches_.emplace_back();
  batch.weight_decay = weight_decay;
  batch.lr_scale = lr_scale;
  return batch;
}

void Optimizer::add_state(std::string kind) {
  std::vector<torch::Tensor> zeros;
  for (const Parameter& parameter : parameters_) {
    zeros.push_back(torch::zeros_like(parameter.tensor.detach()));
  }
  for (Batch& batch : batches_) {
    std::vector<torch::Tensor>& states = batch.states.emplace_back();
    for (const int64_t place : batch.places) states.push_back(zeros[static_cast<size_t>(place)]);
  }
  states_.emplace_back(std::move(kind), std::move(zeros));
}

void Optimizer::step(double learning_rate) {
  torch::NoGradGuard no_grad;
  for (const Parameter& parameter : parameters_) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    TORCH_CHECK(gradient.defined(), "optimizer: ", parameter.name, " has no gradient");
    TORCH_CHECK(gradient.sizes() == parameter.tensor.sizes() && gradient.is_contiguous(),
                "optimizer: the gradient of ", parameter.name, " must be contiguous ",
                parameter.tensor.sizes(), ", got ", gradient.sizes());
  }
  ++steps_;
  for (Batch& batch : batches_) {
    for (const int64_t place : batch.places) {
      batch.gradients.push_back(parameters_[static_cast<size_t>(place)].tensor.grad());
    }
  }
  update(batches_, learning_rate);
  for (Batch& batch : batches_) batch.gradients.clear();
  wholes_.clear();
}

void Optimizer::visit_state(StateVisitor& visitor) {
  visitor.integer("optimizer.steps", steps_);
  wholes_.resize(states_.size());
  for (size_t kind = 0; kind < states_.size(); ++kind) {
    auto& [name, tensors] = states_[kind];
    if (shards_ != nullptr) {
      visit_pieces(visitor, kind);
      continue;
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      visitor.tensor(state_like("optimizer." + name + ".", parameters_[i], tensors[i]));
    }
  }
}

void Optimizer::visit_pieces(StateVisitor& visitor, size_t kind) {
  const auto& [name, tensors] = states_[kind];
  std::vector<torch::Tensor>& wholes = wholes_[kind];
  wholes = shards_->gather(tensors);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    torch::Tensor whole = parameter.is_cut() ? wholes[i] : tensors[i];
    if (!whole.defined()) continue;
    whole = whole.view(parameter.piece->sizes);
    visitor.tensor({"optimizer." + name + "." + parameter.name, whole});
  }
}

void Optimizer::tensors_loaded() {
  if (shards_ == nullptr) return;
  for (size_t kind = 0; kind < states_.size(); ++kind) {
    shards_->scatter(wholes_[kind], states_[kind].second);
  }
}

std::vector<std::string> Optimizer::state_kinds() const {
  std::vector<std::string> kinds;
  for (const auto& [kind, tensors] : states_) kinds.push_back(kind);
  return kinds;
}

std::vector<torch::Tensor> Optimizer::state_of(const std::string& kind,
                                               const std::string& parameter) const {
  const auto state =
      std::ranges::find_if(states_, [&](const auto& entry) { return entry.first == kind; });
  TORCH_CHECK(state != states_.end(), "optimizer: no state '", kind, "'");
  std::vector<torch::Tensor> held;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (whole_name(parameters_[i]) == parameter) held.push_back(state->second[i]);
  }
  return held;
}

const std::vector<ParameterRule>& rules_of(const Choice<Optimizer>& choice) {
  static const std::vector<ParameterRule> none;
  if (choice.is_empty()) return none;
  for (const config::FieldInfo& field : choice.member()->options_type().fields) {
    if (&field.type() != &config::type_of<std::vector<ParameterRule>>()) continue;
    return *static_cast<const std::vector<ParameterRule>*>(
        field.member_of(choice.erased_options()));
  }
  TORCH_CHECK(false, "the options of ", choice.name(), " do not derive from OptimizerOptions");
}

}  // namespace shoal
