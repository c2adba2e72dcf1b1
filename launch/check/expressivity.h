#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "sparse/linear_regions.h"
#include "sparse/sparse_plan.h"

namespace shoal {

/// Bound for one way to train the MLPs of a model.
struct Expressivity {
  std::string setting;
  RegionBound bound;
};

/// Bounds for the model's sparse MLPs, treated as one ReLU MLP of all their layers in order
/// (PA-DST, appendix C): dense or with free masks, with their masks, and with permutations before
/// them. Throws ConfigError if no layer of an MLP is sparse.
std::vector<Expressivity> expressivity_of(const std::vector<SparseLayerInfo>& layers);

/// Prints the table of appendix C.1.
void print_expressivity(const std::vector<Expressivity>& settings, std::ostream& out);

}  // namespace shoal
