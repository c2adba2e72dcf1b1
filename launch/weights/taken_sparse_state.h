#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/checkpoint/manifest.h"
#include "runtime/module/parameter.h"
#include "sparse/layers/sparse_state.h"

namespace shoal {

/// Names of a model's weights, unit by unit, and the names that a checkpoint has for them.
using SourceOf = std::map<std::string, std::string>;

/// A parameter's name; of a stack those of its units on this rank.
std::vector<std::string> names_of_units(const Parameter& parameter);

/// The part of `offered` that goes with the weights in `source_of`: their permutations, and their
/// masks or the scores of cells that are not chosen yet. What the checkpoint has nothing of is left
/// out, and stays as it is. Throws Error (exit 12) if a weight of the checkpoint at `path` would be
/// taken without its permutation, its scores, or the product of low rank beside it.
SparseState taken_state(const SparseState& offered, const SourceOf& source_of,
                        const Manifest& checkpoint, const std::string& path);

/// Throws Error (exit 12) if units of a stack are among `missing`, the model's names of weights
/// that no rank takes: they would keep an order and masks of their own, while others get the
/// checkpoint's.
void require_whole_stacks(const SparseState& taken, const std::vector<std::string>& missing);

/// Fits the state to the checkpoint and lists its tensors by the checkpoint's names.
std::vector<Parameter> by_source_names(SparseState& taken, const SourceOf& source_of,
                                       const Manifest& checkpoint);

}  // namespace shoal
