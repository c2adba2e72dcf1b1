#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/checkpoint/manifest.h"
#include "runtime/module/parameter.h"
#include "sparse/layers/sparse_state.h"

// Order of calls, for weights that are chosen or renamed: taken_state, require_whole_stacks,
// by_source_names, load_tensors (load_weights.h), tensors_loaded() of the taken state. load_weights
// changes no names: it calls taken_state, and load_checkpoint does the rest. A SparseState refers
// to the model's own objects, so loading fills the model. It has one name for a stack of experts.
namespace shoal {

/// The weights to take from a checkpoint, expert by expert: model's name -> checkpoint's name.
using SourceOf = std::map<std::string, std::string>;

/// Returns a parameter's name, or for a stack of units (experts) the name of each on this rank.
std::vector<std::string> names_of_units(const Parameter& parameter);

/// Returns the part of `offered`, the state of a model's sparse layers, that the checkpoint has for
/// the weights in `source_of`: permutations (PA-DST, sparse training with learned permutations),
/// masks, and soft cells (trained scores of a mask's cells until it is chosen). Throws Error (exit
/// 12) if the checkpoint at `path` has a permutation, scores or a low-rank product U V for one of
/// the weights, and the model has no place for it.
SparseState taken_state(const SparseState& offered, const SourceOf& source_of,
                        const Manifest& checkpoint, const std::string& path);

/// Throws Error (exit 12) if `taken` has the permutations or masks of a stack of experts of which
/// only some are taken. `missing`: names of the model's weights that no rank takes.
void require_whole_stacks(const SparseState& taken, const std::vector<std::string>& missing);

/// Makes `taken`, and with it the model, soft (trained matrices and scores) or final
/// (permutations and masks) like the checkpoint. Returns the tensors to fill by checkpoint name,
/// one for each expert of a stack: `sparsity.mask.` + source_of[the expert's weight], for example.
std::vector<Parameter> by_source_names(SparseState& taken, const SourceOf& source_of,
                                       const Manifest& checkpoint);

}  // namespace shoal
