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
  bool raw_weights = false;  ///< not their averages, where the checkpoint has both
  bool json = false;
};

/// Writes the model of a checkpoint without its permutations: its weights and masks in the order
/// that they stand for (FoldedWeights), with which it computes the same. `out` is as a run's
/// folder: a checkpoint of the same step without the state of training, and resolved.yaml. Where
/// folded masks are not such as sparsity.pattern has, its recipe has unstructured, static ones.
/// Throws Error (exit 2) if nothing is permuted, Error (exit 12) if a permutation is still soft,
/// CheckpointError, and StorageError as import_weights.
ExitCode fold(const FoldArguments& arguments, std::ostream& out);

}  // namespace shoal
