#pragma once

#include <memory>
#include <vector>

#include "sparse/layers/sparse_layer.h"
#include "sparse/permutations/permutation.h"
#include "sparse/training/chain_removal.h"

namespace shoal {

/// Finds chains, sparse layers that share hidden neurons, by their names. In an MLP or expert X a
/// chain is `X.fc1` and, with a gate, `X.gate`, followed by `X.fc2`. Neurons that lost their links
/// on one side of a chain lose the others too (chain_removal.h). There is no chain if either side
/// is dense. `permutations`, none null: those of the layers, in any order, matched by weight name.
std::vector<LayerChain> chain_layers(const std::vector<SparseLayer>& layers,
                                     const std::vector<std::shared_ptr<Permutation>>& permutations);

}  // namespace shoal
