#pragma once

#include <string>

#include "launch/model/model_weights.h"
#include "launch/weights/renamed_state.h"
#include "parallel/checkpoint/manifest.h"

namespace shoal {

/// Leaves permutations and soft cells out of the weights to be loaded from a checkpoint where it
/// has none for them: these stay as they are. Throws Error (exit 12) if a weight of the checkpoint
/// would be taken without its permutation, without the scores of cells that are not chosen yet, or
/// as require_branches.
void fit_sparse_state(ModelWeights& weights, const Manifest& manifest, const std::string& path);

/// Throws Error (exit 12) if a weight would be taken without the product of low rank beside it.
/// `source_of`: the checkpoint's names of what is taken, by the model's.
void require_branches(const SourceOf& source_of, const Manifest& manifest, const std::string& path);

}  // namespace shoal
