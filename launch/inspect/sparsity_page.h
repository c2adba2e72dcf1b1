#pragma once

#include <string>
#include <vector>

#include "launch/inspect/sparsity_history.h"

namespace shoal {

/// Self-contained HTML page without scripts. For each sparse layer it shows the statistics of every
/// checkpoint, the permutation's curves over logged steps, and pictures of masks and permutations,
/// as far as the history has them.
std::string sparsity_page(const std::string& title, const SparsityHistory& history);

/// Formats outputs by inputs: "768 x 3072".
std::string shape_text(const SparseLayerHistory& layer);
/// State of the permutation: "none", "hard" or "soft". Of a soft one without a distance in the
/// history also its `kind`, such as "soft, sinkhorn".
std::string order_text(const SparseMoment& moment, const std::string& kind);
/// Cells of a table row: weights, density, changed, empty rows, fan-out, order_text, distance,
/// penalty.
std::vector<std::string> number_cells(const SparseMoment& moment, const std::string& kind);

}  // namespace shoal
