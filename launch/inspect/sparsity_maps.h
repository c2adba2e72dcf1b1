#pragma once

#include <ostream>
#include <string>

#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

/// `shoal inspect PATH --sparsity [-o FILE.html]`: masks and permutations of the sparse layers,
/// over all checkpoints of a run or in one. `page`: an .html file to draw them into, which is
/// replaced; "": numbers only. Opens no data. Throws Error (exit 2) for a recipe without sparsity,
/// Error (exit 12) for checkpoints with other layers, CheckpointError, DataError, StorageError.
ExitCode draw_sparsity(const CheckpointChoice& choice, const std::string& page, bool json,
                       std::ostream& out);

}  // namespace shoal
