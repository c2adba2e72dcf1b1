#include "parallel/gradients/step_tensors.h"

#include "runtime/base/error.h"
#include "runtime/random/random_stream.h"

namespace shoal {

std::pair<const ParameterGroup*, const Parameter*> StepTensors::find(
    const std::string& name) const {
  for (const ParameterGroup& group : sync_.groups()) {
    for (const Parameter& parameter : group.parameters) {
      if (parameter.name == name) return {&group, &parameter};
    }
  }
  TORCH_CHECK(false, name, " is not trained");
}

OptimizerShards::Range StepTensors::gradient(const std::string& name) const {
  if (shards_ != nullptr) return shards_->range_of(name);
  return {parameter(name).tensor.grad().view({-1}), 0};
}

void StepTensors::gather_gradients(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (whole_gradients_.contains(name)) continue;
    const torch::Tensor own = gradient(name).gradient;
    const torch::Tensor whole = shards_ ? shards_->gather_ranges(name, own) : own.clone();
    whole_gradients_[name] = whole.view(parameter(name).tensor.sizes());
  }
}

const torch::Tensor& StepTensors::whole_gradient(const std::string& name) const {
  const auto found = whole_gradients_.find(name);
  TORCH_CHECK(found != whole_gradients_.end(), "the whole gradient of ", name,
              " was not asked for in this step");
  return found->second;
}

torch::Tensor StepTensors::read_state(const std::string& kind, const std::string& name) const {
  const torch::NoGradGuard no_grad;
  const torch::Tensor& weight = parameter(name).tensor;
  std::vector<torch::Tensor> held{torch::empty({0}, weight.options())};
  for (const torch::Tensor& part : optimizer_.state_of(kind, name)) held.push_back(part.view({-1}));
  const torch::Tensor own = torch::cat(held);
  return (shards_ ? shards_->gather_ranges(name, own) : own).view(weight.sizes());
}

void StepTensors::write_state(const std::string& kind, const std::string& name,
                              const torch::Tensor& whole) {
  const torch::NoGradGuard no_grad;
  TORCH_CHECK(whole.sizes() == parameter(name).tensor.sizes(), "state ", kind, " of ", name,
              ": expected ", parameter(name).tensor.sizes(), ", got ", whole.sizes());
  const torch::Tensor flat = whole.reshape({-1});
  int64_t begin = gradient(name).begin;
  for (const torch::Tensor& part : optimizer_.state_of(kind, name)) {
    part.view({-1}).copy_(flat.narrow(0, begin, part.numel()));
    begin += part.numel();
  }
}

void require_equal_replicas(const torch::Tensor& tensor, Communicator& replicas,
                            const std::string& message) {
  if (replicas.size() == 1) return;
  const torch::Tensor host = tensor.to(torch::kCPU).contiguous();
  const auto hash = static_cast<int64_t>(
      hash_name({static_cast<const char*>(host.const_data_ptr()), host.nbytes()}) >> 1);
  const torch::Tensor most = torch::tensor({hash, -hash}, torch::kInt64).to(tensor.device());
  all_reduce(replicas, most, ReduceOp::kMax);
  if (most[0].item<int64_t>() != -most[1].item<int64_t>()) throw CommError(message);
}

}  // namespace shoal
