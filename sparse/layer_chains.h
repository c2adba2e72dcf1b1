#pragma once

#include <memory>
#include <vector>

#include "sparse/layers/sparse_layer.h"
#include "sparse/permutations/permutation.h"
#include "sparse/training/chain_removal.h"

namespace shoal {

/// Finds chains of sparse layers in MLPs and experts, by name: `X.fc1`, and with a gate `X.gate`,
/// before `X.fc2`. There is no chain if either side is dense.
std::vector<LayerChain> chain_layers(const std::vector<SparseLayer>& layers,
                                     const std::vector<std::shared_ptr<Permutation>>& permutations);

}  // namespace shoal
