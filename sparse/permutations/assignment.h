#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace shoal {

/// Linear assignment, which finds the permutation nearest to a soft one: returns the column p(i) of
/// each row i with the largest sum of score[i][p(i)], for a non-empty square matrix of finite
/// scores on the host. If the row maxima lie in different columns, p selects them; else shortest
/// augmenting paths, O(n³). Ties are broken deterministically. Source: Jonker and Volgenant 1987.
std::vector<int64_t> best_assignment(const torch::Tensor& score_nn);

}  // namespace shoal
