#pragma once

#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "sparse/permutations/permutation.h"

// h neurons
namespace shoal {

/// Sparse layers that write and read the same neurons: the outputs of fc1, and of the gate if there
/// is one, are the inputs of fc2.
struct LayerChain {
  struct Side {
    size_t layer;           ///< index of the layer among the sparse layers
    bool takes_in = false;  ///< true if the neurons are its inputs, else its outputs
    /// The layer's permutation, if it reorders the neurons; else null.
    std::shared_ptr<const Permutation> permutation = nullptr;
  };
  std::vector<Side> sides;

  /// True if a permutation between the layers is still soft: then every neuron is linked to all
  /// others.
  bool is_soft() const;
};

/// The links of one matrix to the neurons of a chain.
struct NeuronLinks {
  torch::Tensor is_on;     ///< bool, a row for each neuron; a view, changed in place
  torch::Tensor row_of_h;  ///< row of each neuron, int64; undefined: in order
  bool may_change = true;
};

/// Row of each neuron in one matrix of a side's stack; undefined: in order. The chain must not be
/// soft.
torch::Tensor row_of_neurons(const LayerChain::Side& side, int64_t matrix);

/// Removes all links of neurons that have none in some matrix: without incoming links outgoing ones
/// are removed, and vice versa. Source: Zhang et al. 2024 (CHT).
void remove_chains(const std::vector<NeuronLinks>& matrices);

}  // namespace shoal
