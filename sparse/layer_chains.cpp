#include "sparse/layer_chains.h"

#include <algorithm>
#include <string>

namespace shoal {
namespace {

constexpr std::string_view kSecond = ".fc2.weight";

/// The permutation of a layer, if it reorders its inputs or, if `takes_in` is false, its outputs.
std::shared_ptr<const Permutation> permutation_of(
    const SparseLayer& layer, bool takes_in,
    const std::vector<std::shared_ptr<Permutation>>& permutations) {
  const PermutationAxis axis = takes_in ? PermutationAxis::kInputs : PermutationAxis::kOutputs;
  const auto found = std::ranges::find_if(permutations, [&](const auto& permutation) {
    return permutation->name() == layer.parameter.name && permutation->place().axis == axis;
  });
  return found == permutations.end() ? nullptr : *found;
}

}  // namespace

std::vector<LayerChain> chain_layers(
    const std::vector<SparseLayer>& layers,
    const std::vector<std::shared_ptr<Permutation>>& permutations) {
  std::vector<LayerChain> chains;
  for (size_t second = 0; second < layers.size(); ++second) {
    const std::string& name = layers[second].parameter.name;
    if (!name.ends_with(kSecond)) continue;
    const std::string owner = name.substr(0, name.size() - kSecond.size());
    LayerChain chain;
    for (const char* first : {".fc1.weight", ".gate.weight"}) {
      const auto found = std::ranges::find_if(
          layers, [&](const SparseLayer& layer) { return layer.parameter.name == owner + first; });
      if (found == layers.end() || found->pattern->rows() != layers[second].pattern->columns()) {
        continue;
      }
      chain.sides.push_back({static_cast<size_t>(found - layers.begin()), /*takes_in=*/false,
                             permutation_of(*found, false, permutations)});
    }
    if (chain.sides.empty()) continue;
    chain.sides.push_back(
        {second, /*takes_in=*/true, permutation_of(layers[second], true, permutations)});
    chains.push_back(std::move(chain));
  }
  return chains;
}

}  // namespace shoal
