#pragma once

#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "sparse/permutations/permutation.h"

// h neurons
namespace shoal {

/// Sparse layers on both sides of the same neurons: fc1, and with a gate the gate, put out what fc2
/// takes in.
struct LayerChain {
  struct Side {
    size_t layer;           ///< its place among the sparse layers
    bool takes_in = false;  ///< whether the neurons are its inputs, else its outputs
    /// The layer's, if it reorders the neurons; else null.
    std::shared_ptr<const Permutation> permutation = nullptr;
  };
  std::vector<Side> sides;

  /// Whether a permutation between the layers is still soft: then each neuron leads to all.
  bool is_soft() const;
};

/// The links of one matrix with the neurons of a chain.
struct NeuronLinks {
  torch::Tensor is_on;     ///< bool, a row for each neuron; a view that is changed in place
  torch::Tensor row_of_h;  ///< the row of each neuron, int64; undefined: its own
  bool may_change = true;
};

/// Which row of a side's links each neuron has, in one matrix of its stack; undefined: its own. The
/// chain is not soft.
torch::Tensor row_of_neurons(const LayerChain::Side& side, int64_t matrix);

/// Takes all links from neurons that have none in some matrix: where nothing comes in, nothing goes
/// out, and the other way round.
/// Source: Zhang et al. 2024 (CHT).
void remove_chains(const std::vector<NeuronLinks>& matrices);

}  // namespace shoal
