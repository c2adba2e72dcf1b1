#include "runtime/optim/optimizer.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/device/device_copy.h"

namespace shoal {
namespace {

bool contains(const std::string& name, const std::string& part) {
  return name.find(part) != std::string::npos;
}

bool decays(const OptimizerOptions& options, const Parameter& parameter) {
  if (options.weight_decay == 0.0 || parameter.matrix_dims() < 2) return false;
  const std::string& name = parameter.piece ? parameter.piece->parameter : parameter.name;
  return std::none_of(options.no_decay.begin(), options.no_decay.end(),
                      [&](const std::string& part) { return contains(name, part); });
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

Optimizer::Optimizer(const OptimizerOptions& options, const Context& context)
    : options_(options), shards_(context.shards) {
  // A rank's pieces need not hold what no_decay names.
  if (shards_ == nullptr) check_names(options, context.parameters);
  for (size_t i = 0; i < context.parameters.size(); ++i) {
    if (context.parameters[i].tensor.requires_grad()) order_.push_back(i);
  }
  const auto middle = std::stable_partition(order_.begin(), order_.end(), [&](size_t i) {
    return decays(options, context.parameters[i]);
  });
  num_decaying_ = middle - order_.begin();
  for (const size_t i : order_) {
    const Parameter& parameter = parameters_.emplace_back(context.parameters[i]);
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
  batch.first = first;
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
  // Shards make the same calls on every rank, whatever pieces it has.
  const bool always = shards_ != nullptr;
  if (always || num_decaying_ > 0) {
    update(batch(0, num_decaying_, options_.weight_decay), learning_rate);
  }
  if (always || num_decaying_ < count) update(batch(num_decaying_, count, 0.0), learning_rate);
  wholes_.clear();
  std::fill(gradients_.begin(), gradients_.end(), torch::Tensor());
}

void Optimizer::visit_state(StateVisitor& visitor) {
  visitor.integer("optimizer.steps", steps_);
  wholes_.resize(states_.size());
  for (size_t kind = 0; shards_ != nullptr && kind < states_.size(); ++kind) {
    visit_pieces(visitor, kind);
  }
  if (shards_ != nullptr) return;
  for (auto& [kind, tensors] : states_) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& parameter = parameters_[i];
      visitor.tensor({"optimizer." + kind + "." + parameter.name, tensors[i],
                      parameter.is_stacked(), parameter.unit_ids});
    }
  }
}

void Optimizer::visit_pieces(StateVisitor& visitor, size_t kind) {
  const auto& [name, tensors] = states_[kind];
  std::vector<torch::Tensor>& wholes = wholes_[kind];
  wholes = shards_->gather(in_context_order(tensors));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    torch::Tensor whole = parameter.is_cut() ? wholes[order_[i]] : tensors[i];
    if (!whole.defined()) continue;
    whole = whole.view(parameter.piece->sizes);
    visitor.tensor({"optimizer." + name + "." + parameter.name, whole});
  }
}

void Optimizer::tensors_loaded() {
  if (shards_ == nullptr) return;
  for (size_t kind = 0; kind < states_.size(); ++kind) {
    shards_->scatter(wholes_[kind], in_context_order(states_[kind].second));
  }
}

std::vector<torch::Tensor> Optimizer::in_context_order(
    const std::vector<torch::Tensor>& tensors) const {
  std::vector<torch::Tensor> ordered(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) ordered[order_[i]] = tensors[i];
  return ordered;
}

torch::Tensor Optimizer::sum_over_pieces(const torch::Tensor& values_PN, const Batch& batch) const {
  const auto num_pieces = static_cast<int64_t>(order_.size());
  const std::vector<int64_t> places(
      order_.begin() + static_cast<std::ptrdiff_t>(batch.first),
      order_.begin() + static_cast<std::ptrdiff_t>(batch.first) + values_PN.size(0));
  const torch::Tensor place_P = send_to(places, values_PN.device());
  torch::Tensor all = torch::zeros({num_pieces, values_PN.size(1)}, values_PN.options());
  all.index_copy_(0, place_P, values_PN);
  shards_->sum(all);
  return all.index_select(0, place_P);
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const auto& [kind, tensors] : states_) {
    for (const torch::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace shoal
