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

/// Returns a parameter's name, or for a stack of units (experts) the name of each on this rank.
std::vector<std::string> names_of_units(const Parameter& parameter);

/// Returns the part of `offered`, the state of a model's sparse layers, that the checkpoint has for
/// the weights in `source_of` and that is to be loaded with them: permutations (PA-DST, sparse
/// training with learned permutations), masks, and soft cells (trained scores of the cells of a
/// mask that is not chosen yet). Throws Error (exit 12) if the checkpoint at `path` has a
/// permutation, scores or a low-rank product U V (added to a sparse layer's output) for one of the
/// weights, and the model has no place for it.
SparseState taken_state(const SparseState& offered, const SourceOf& source_of,
                        const Manifest& checkpoint, const std::string& path);

/// Throws Error (exit 12) if `taken` has the permutations or masks of a stack of experts of which
/// only some are taken. `missing`: names of the model's weights that no rank takes.
void require_whole_stacks(const SparseState& taken, const std::vector<std::string>& missing);

/// Converts `taken` in place to the form that the checkpoint has, soft (trained matrices and
/// scores) or final (permutations and masks), and returns its tensors under the checkpoint's names.
std::vector<Parameter> by_source_names(SparseState& taken, const SourceOf& source_of,
                                       const Manifest& checkpoint);

}  // namespace shoal
