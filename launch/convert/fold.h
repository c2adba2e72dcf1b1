#pragma once

#include <ostream>
#include <string>

#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// Arguments of `shoal fold CKPT|RUN OUT [--best] [--raw-weights] [--json]`.
struct FoldArguments {
  CheckpointChoice checkpoint;  ///< overrides are not read
  std::string out;              ///< folder to create
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
