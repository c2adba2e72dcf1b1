#pragma once

#include <string>
#include <vector>

#include "launch/inspect/sparsity_history.h"

namespace shoal {

/// A self-contained HTML page without scripts: for each sparse layer the numbers of every
/// checkpoint, its permutation over the logged steps, and the history's pictures of masks and
/// permutations.
std::string sparsity_page(const std::string& title, const SparsityHistory& history);

/// Shape as text, "768 x 3072": outputs by inputs.
std::string shape_text(const SparseLayerHistory& layer);
/// "soft", "hard", or "soft, KIND" if a soft one's matrix is unknown; "none" without a permutation.
std::string order_text(const SparseMoment& moment, const std::string& kind);
/// Cells of a table row: weights, density, share changed, empty rows, fan-out, order_text,
/// distance, penalty.
std::vector<std::string> number_cells(const SparseMoment& moment, const std::string& kind);

}  // namespace shoal
