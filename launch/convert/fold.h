#pragma once

#include <ostream>
#include <string>

#include "runtime/base/error.h"

namespace shoal {

/// Arguments of `shoal fold CKPT|RUN OUT [--best] [--raw-weights] [--json]`.
struct FoldArguments {
  std::string path;   ///< folder of a checkpoint, or of a run, whose newest checkpoint is used
  std::string out;    ///< folder to create
  bool best = false;  ///< the run's checkpoint with the best score instead
  bool raw_weights = false;  ///< trained weights even if the checkpoint also has their averages
  bool json = false;
};

/// Folds a checkpoint's permutations into its weights and masks, so that the model computes the
/// same without permutations. `out` is laid out as a run's folder: a checkpoint of the same step
/// without training state, and its recipe, resolved.yaml. If folded masks do not fit
/// sparsity.pattern, the new recipe has unstructured masks that stay fixed (rule static). Throws
/// Error (exit 2) if nothing is permuted, Error (exit 12) if a permutation is still soft (a trained
/// matrix), CheckpointError (exit 20) for damaged files, StorageError if files cannot be read or
/// written, or `out` exists.
ExitCode fold(const FoldArguments& arguments, std::ostream& out);

}  // namespace shoal
