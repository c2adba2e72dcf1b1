#pragma once

#include <ostream>
#include <string>

#include "runtime/base/error.h"

namespace shoal {

/// `shoal fold CKPT|RUN OUT [--best] [--raw-weights] [--json]`.
struct FoldArguments {
  std::string path;
  std::string out;
  bool best = false;
  bool raw_weights = false;  ///< trained weights even if the checkpoint also has their averages
  bool json = false;
};

/// Folds a checkpoint's permutations into its weights and masks (FoldedWeights), so that the model
/// computes the same without permutations. `out` is laid out as a run folder: a checkpoint of the
/// same step without training state, and resolved.yaml. If folded masks do not fit
/// sparsity.pattern, the new recipe has static unstructured masks. Throws Error (exit 2) if nothing
/// is permuted, Error (exit 12) if a permutation is still soft, CheckpointError, and StorageError
/// as import_weights.
ExitCode fold(const FoldArguments& arguments, std::ostream& out);

}  // namespace shoal
