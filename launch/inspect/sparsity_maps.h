#pragma once

#include <ostream>
#include <string>

#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// `shoal inspect PATH --sparsity [-o FILE.html]`: masks and permutations of the sparse layers,
/// over all checkpoints of a run or in one; with `-o` a page of them, which is replaced. `page`: an
/// .html file; "": numbers only. Opens no data. Throws as read_sparsity_history and
/// add_permutation_curves, and StorageError if the page cannot be written.
ExitCode draw_sparsity(const CheckpointChoice& choice, const std::string& page, bool json,
                       std::ostream& out);

}  // namespace shoal
