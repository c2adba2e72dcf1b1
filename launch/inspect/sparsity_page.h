#pragma once

#include <string>
#include <vector>

#include "launch/inspect/sparsity_history.h"
#include "launch/pages/page.h"

namespace shoal {

/// For each sparse layer the statistics of every checkpoint, the permutation's curves over logged
/// steps, and pictures of masks and permutations, as far as the history has them.
Page sparsity_page(const std::string& title, const SparsityHistory& history);

/// Formats outputs and inputs of a layer: "768 x 3072".
std::string shape_text(const SparseLayerHistory& layer);
/// State of the permutation P of a weight in one checkpoint: "none", "hard", or "soft" while P is a
/// trained matrix. If a soft P is not saved as a matrix but as parameters that make it up, appends
/// `kind`, the recipe's sparsity.permutation: "soft, kaleidoscope".
std::string order_text(const SparseMoment& moment, const std::string& kind);
/// Cells of a table row: weights, density, share changed, empty rows, fan-out (least / median /
/// most), order_text, distance of P from the identity, penalty of a soft P (its distance from a
/// permutation). Both are in [0, 1]; "-": no P, no saved matrix, or (penalty) a hard P.
std::vector<std::string> number_cells(const SparseMoment& moment, const std::string& kind);

}  // namespace shoal
