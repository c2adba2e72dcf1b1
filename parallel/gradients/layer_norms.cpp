#include "parallel/gradients/layer_norms.h"

#include <cmath>
#include <map>
#include <string_view>

#include "runtime/optim/gradients.h"

// L layers
namespace shoal {
namespace {

std::string layer_name(const std::string& parameter) {
  for (const std::string_view ending : {".weight", ".bias"}) {
    if (parameter.ends_with(ending)) return parameter.substr(0, parameter.size() - ending.size());
  }
  return parameter;
}

}  // namespace

std::vector<torch::Tensor> copy_weights(const GradientShare& share) {
  std::vector<torch::Tensor> weights;
  for (const Parameter& parameter : share.parameters) {
    weights.push_back(parameter.tensor.detach().clone());
  }
  return weights;
}

std::vector<LayerNorms> layer_norms(const std::vector<Parameter>& parameters,
                                    const GradientShare& share, const GradientStats& stats,
                                    const std::vector<torch::Tensor>& before, Communicator& world) {
  const torch::NoGradGuard no_grad;
  std::vector<LayerNorms> layers;
  std::map<std::string, int64_t> known;
  std::vector<int64_t> layer_at(parameters.size());
  for (size_t place = 0; place < parameters.size(); ++place) {
    if (!parameters[place].tensor.requires_grad()) continue;
    const std::string name = layer_name(parameters[place].name);
    const auto [found, is_new] = known.try_emplace(name, std::ssize(layers));
    if (is_new) layers.push_back({.layer = name});
    layer_at[place] = found->second;
  }
  std::vector<torch::Tensor> weights;
  for (size_t i = 0; i < share.parameters.size(); ++i) {
    weights.push_back(share.parameters[i].tensor);
    before[i].sub_(weights[i]);
  }
  const torch::Tensor weight = square_sums_of(weights).to(torch::kCPU),
                      update = square_sums_of(before).to(torch::kCPU);
  const torch::Tensor sum_L3 = torch::zeros({std::ssize(layers), 3}, torch::kFloat64);
  auto sum = sum_L3.accessor<double, 2>();
  for (size_t i = 0; i < share.parameters.size(); ++i) {
    auto layer = sum[layer_at[static_cast<size_t>(share.places[i])]];
    layer[0] += weight.const_data_ptr<double>()[i];
    layer[1] += stats.square_sums[i];
    layer[2] += update.const_data_ptr<double>()[i];
  }
  all_reduce(world, sum_L3);
  for (int64_t l = 0; l < std::ssize(layers); ++l) {
    LayerNorms& layer = layers[static_cast<size_t>(l)];
    layer.weight = std::sqrt(sum[l][0]);
    layer.gradient = std::sqrt(sum[l][1]);
    layer.update = std::sqrt(sum[l][2]);
  }
  return layers;
}

}  // namespace shoal
