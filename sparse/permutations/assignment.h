#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// The permutation p with the largest sum of score[i][p(i)], for a square, not empty matrix of
/// finite scores on the host. If the row maxima are in different columns, takes those; else
/// shortest augmenting paths in O(n³). Ties are resolved deterministically. Source: Jonker and
/// Volgenant 1987.
std::vector<int64_t> best_assignment(const torch::Tensor& score_nn);

}  // namespace shoal
