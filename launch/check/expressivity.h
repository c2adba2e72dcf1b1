#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "sparse/linear_regions.h"
#include "sparse/sparse_plan.h"

namespace shoal {

/// Lower bound on the number of linear regions of a model's MLPs, for one kind of masks.
struct Expressivity {
  std::string setting;  ///< "dense or free masks", "these masks", "these masks, permuted"
  RegionBound bound;
};

/// Shows how much expressivity structured sparsity masks leave to a model: a ReLU MLP cuts its
/// input space into linear regions, the more the better. Takes the sparse MLP layers among
/// `layers`, except stacks of experts, as one ReLU MLP. Returns bounds for dense or free
/// (unstructured) masks, for its own masks, and for these with a permutation before each layer.
/// Throws ConfigError if no MLP layer is sparse. Source: PA-DST ("Efficient Dynamic Structured
/// Sparse Training with Learned Shuffles"), appendix C.
std::vector<Expressivity> expressivity_of(const std::vector<SparseLayerInfo>& layers);

/// Prints the bounds as a table with a row per setting, like that of appendix C.1.
void print_expressivity(const std::vector<Expressivity>& settings, std::ostream& out);

}  // namespace shoal
