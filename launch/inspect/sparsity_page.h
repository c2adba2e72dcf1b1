#pragma once

#include <string>
#include <vector>

#include "launch/inspect/sparsity_history.h"

namespace shoal {

/// A page in HTML, without scripts, and without anything from elsewhere: of each sparse layer the
/// numbers of every checkpoint, its permutation over the logged steps, and pictures of masks and
/// permutations, as far as the history has some.
std::string sparsity_page(const std::string& title, const SparsityHistory& history);

/// "768 x 3072": outputs by inputs.
std::string shape_text(const SparseLayerHistory& layer);
/// "soft", "hard", of a soft one that is not known as a matrix "soft, KIND"; "none" without one.
std::string order_text(const SparseMoment& moment, const std::string& kind);
/// Weights, density, share changed, empty rows, fan-out, order_text, distance and penalty.
std::vector<std::string> number_cells(const SparseMoment& moment, const std::string& kind);

}  // namespace shoal
