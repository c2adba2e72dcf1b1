#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// The permutation p of the largest sum of score[i][p(i)], for a square matrix, not empty, of
/// finite scores on the host. Where the largest of each row are in different columns, those; else
/// by shortest augmenting paths in O(n³). Of equal sums always the same one. Source: Jonker and
/// Volgenant 1987.
std::vector<int64_t> best_assignment(const torch::Tensor& score_nn);

}  // namespace shoal
