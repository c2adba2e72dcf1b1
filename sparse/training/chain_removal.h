#pragma once

#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "sparse/layers/sparse_layer.h"
#include "sparse/permutations/permutation.h"

// h neurons
namespace shoal {

/// A chain of sparse layers that share hidden neurons: the outputs of fc1, and of the gate if there
/// is one, are the inputs of fc2. A neuron is linked to a layer by its weights that are on.
struct LayerChain {
  struct Side {
    size_t layer;           ///< index of the layer among the sparse layers
    bool takes_in = false;  ///< true if the neurons are its inputs, else its outputs
    /// The layer's permutation, if it reorders the neurons; else null.
    std::shared_ptr<const Permutation> permutation = nullptr;
  };
  std::vector<Side> sides;

  /// True if a permutation between the layers is still soft, so that all neurons are linked.
  bool is_soft() const;
};

/// Finds chains by the layers' names. In an MLP or expert X a chain is `X.fc1` and, with a gate,
/// `X.gate`, followed by `X.fc2`. There is no chain if either side is dense. `permutations`, none
/// null: those of the layers, in any order, matched by weight name.
std::vector<LayerChain> chain_layers(const std::vector<SparseLayer>& layers,
                                     const std::vector<std::shared_ptr<Permutation>>& permutations);

/// Links of one matrix to the neurons of a chain; PruneGrow makes one for each side of the chain.
struct NeuronLinks {
  torch::Tensor is_on;     ///< bool, a row for each neuron; a view, changed in place
  torch::Tensor row_of_h;  ///< row in is_on of each neuron, int64; undefined: in order
  bool may_change = true;  ///< false: links are only read, since this update grows none
};

/// Row of each neuron in matrix (expert) `matrix` of a side that is not soft; undefined: in order.
torch::Tensor row_of_neurons(const LayerChain::Side& side, int64_t matrix);

/// Removes all links of each neuron that has none in one or more of `matrices`, the sides of a
/// chain (in stacks, of one expert): a neuron without incoming links loses its outgoing ones, and
/// vice versa. Source: Zhang et al. 2024 (CHT).
void remove_chains(const std::vector<NeuronLinks>& matrices);

}  // namespace shoal
