#pragma once

#include <ostream>
#include <string>

#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

struct SparsityArguments {
  CheckpointChoice checkpoint;
  std::string page = {};  ///< a file, a name in .html; none: numbers only
  bool json = false;
};

/// `shoal inspect PATH --sparsity [-o FILE.html]`: masks and permutations of the sparse layers,
/// over all checkpoints of a run or in one; with `-o` a page of them, which is replaced. Opens no
/// data. Throws as read_sparsity_history and add_permutation_curves, and StorageError if the page
/// cannot be written.
ExitCode draw_sparsity(const SparsityArguments& arguments, std::ostream& out);

}  // namespace shoal
