#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/checkpoint/manifest.h"
#include "runtime/module/parameter.h"
#include "sparse/layers/sparse_state.h"

namespace shoal {

/// Weights that are taken from a checkpoint, each expert by itself: the model's name of each, and
/// the checkpoint's.
using SourceOf = std::map<std::string, std::string>;

/// Returns a parameter's name; for a stack of units (experts) those of the units on this rank.
std::vector<std::string> names_of_units(const Parameter& parameter);

/// Returns the part of `offered`, the state of a model's sparse layers, that goes with the weights
/// in `source_of`: permutations (PA-DST), and masks or, for cells of a mask that are not chosen
/// yet, their trained scores. What the checkpoint lacks is left out, and stays as it is. Throws
/// Error (exit 12) if a weight of the checkpoint at `path` would be taken without its permutation,
/// its scores, or the product of low rank beside it.
SparseState taken_state(const SparseState& offered, const SourceOf& source_of,
                        const Manifest& checkpoint, const std::string& path);

/// Throws Error (exit 12) if units of a stack are among `missing`, the model's names of weights
/// that no rank takes: they would keep their own order and masks, others the checkpoint's.
void require_whole_stacks(const SparseState& taken, const std::vector<std::string>& missing);

/// Gives the state the checkpoint's form (soft scores or chosen masks) and lists its tensors by the
/// checkpoint's names, for loading.
std::vector<Parameter> by_source_names(SparseState& taken, const SourceOf& source_of,
                                       const Manifest& checkpoint);

}  // namespace shoal
