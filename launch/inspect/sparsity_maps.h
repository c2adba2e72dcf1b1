#pragma once

#include <ostream>

#include "launch/inspect/inspect.h"

namespace shoal {

/// `shoal inspect PATH --sparsity [-o FILE.html]`: reports masks and permutations of the sparse
/// layers in all checkpoints of a run, or in one; `-o` also writes them as an HTML page, replacing
/// the file. Opens no data. Throws as read_sparsity_history and add_permutation_curves, and
/// StorageError if the page cannot be written.
ExitCode draw_sparsity(const InspectArguments& arguments, std::ostream& out);

}  // namespace shoal
