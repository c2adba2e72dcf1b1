#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/checkpoint/manifest.h"
#include "runtime/module/parameter.h"
#include "sparse/layers/sparse_state.h"

namespace shoal {

/// The weights to take from a checkpoint, expert by expert: model's name -> checkpoint's name.
using SourceOf = std::map<std::string, std::string>;

/// Returns a parameter's name; for a stack of units (experts) a name for each unit on this rank.
std::vector<std::string> names_of_units(const Parameter& parameter);

/// Returns the part of `offered`, the state of a model's sparse layers, that goes with the weights
/// in `source_of`: permutations (PA-DST), and masks or, for cells of a mask that are not chosen
/// yet, their trained scores. Parts that the checkpoint lacks are left out: the model keeps its
/// own. Throws Error (exit 12) if a weight of the checkpoint at `path` would be taken without its
/// permutation, its scores, or the product of low rank beside it.
SparseState taken_state(const SparseState& offered, const SourceOf& source_of,
                        const Manifest& checkpoint, const std::string& path);

/// Throws Error (exit 12) if `taken` has the permutations or masks of a stack of experts, some of
/// which are in `missing`, the names of the model's weights that no rank takes: a stack would then
/// mix its own order or masks with the checkpoint's.
void require_whole_stacks(const SparseState& taken, const std::vector<std::string>& missing);

/// Gives the state the checkpoint's form (soft scores or chosen masks) and lists its tensors by the
/// checkpoint's names, for loading.
std::vector<Parameter> by_source_names(SparseState& taken, const SourceOf& source_of,
                                       const Manifest& checkpoint);

}  // namespace shoal
