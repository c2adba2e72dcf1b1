#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// T tokens  U units  K choices
namespace shoal {

/// int64 [T, K]: the units of the k highest scores of each row, highest first; ties go to the lower
/// unit. A NaN counts as minus infinity. Not differentiable. TORCH_CHECK unless 1 <= k <= U.
torch::Tensor top_k(const torch::Tensor& score_TU, int64_t k);

/// bool [T]: marks the counts[g] lowest scores in each run of tokens [offsets[g], offsets[g + 1]);
/// among ties the higher tokens. A NaN counts as minus infinity.
torch::Tensor mark_lowest(const torch::Tensor& score_T, const std::vector<int64_t>& offsets,
                          const std::vector<int64_t>& counts);

}  // namespace shoal
