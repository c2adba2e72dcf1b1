#include "sparse/training/chain_removal.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

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

bool LayerChain::is_soft() const {
  return std::ranges::any_of(sides, [](const Side& side) {
    return side.permutation != nullptr && side.permutation->is_soft();
  });
}

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

torch::Tensor row_of_neurons(const LayerChain::Side& side, int64_t matrix) {
  if (side.permutation == nullptr) return {};
  const torch::Tensor index_h = side.permutation->index()[matrix];
  // Output i is row p(i) of S; input p(i) is column i of it.
  return side.takes_in ? index_h.argsort(/*stable=*/true, 0, /*descending=*/false) : index_h;
}

void remove_chains(const std::vector<NeuronLinks>& matrices) {
  torch::Tensor is_linked_h;
  for (const NeuronLinks& matrix : matrices) {
    torch::Tensor has_any_h = matrix.is_on.any(1);
    if (matrix.row_of_h.defined()) has_any_h = has_any_h.index_select(0, matrix.row_of_h);
    is_linked_h = is_linked_h.defined() ? is_linked_h & has_any_h : has_any_h;
  }
  for (const NeuronLinks& matrix : matrices) {
    if (!matrix.may_change) continue;
    torch::Tensor stays = is_linked_h;
    if (matrix.row_of_h.defined()) {
      stays = at::empty_like(is_linked_h).index_copy_(0, matrix.row_of_h, is_linked_h);
    }
    torch::Tensor is_on = matrix.is_on;
    is_on.logical_and_(stays.unsqueeze(1));
  }
}

}  // namespace shoal
