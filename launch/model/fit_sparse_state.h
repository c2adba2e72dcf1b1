#pragma once

#include <string>

#include "launch/model/build_model.h"
#include "parallel/checkpoint/manifest.h"

namespace shoal {

/// Leaves permutations and soft cells out of the weights to be loaded from a checkpoint where it
/// has none for them: these stay as they are. Throws Error (exit 12) if a weight of the checkpoint
/// would be taken without its permutation, or without the scores of cells that are not chosen yet.
void fit_sparse_state(ModelWeights& weights, const Manifest& manifest, const std::string& path);

}  // namespace shoal
