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
  bool raw_weights = false;  ///< not their averages, if the checkpoint has both
  bool json = false;
};

/// Writes a checkpoint's model without its permutations: reorders weights and masks
/// (FoldedWeights), so that it computes the same. `out` becomes a run folder: a checkpoint of the
/// same step without training state, and resolved.yaml. If folded masks no longer fit
/// sparsity.pattern, the recipe gets the pattern unstructured with static masks. Throws Error (exit
/// 2) if nothing is permuted, Error (exit 12) if a permutation is still soft, CheckpointError, and
/// StorageError as import_weights.
ExitCode fold(const FoldArguments& arguments, std::ostream& out);

}  // namespace shoal
