#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// T tokens  U units  K choices
namespace shoal {

/// Returns int64 [T, K]: the units (columns) of the k highest scores of each row, highest first;
/// unlike torch.topk, ties go to the lower unit on CPUs and GPUs. A NaN counts as minus infinity.
/// Not differentiable. TORCH_CHECK unless 1 <= k <= U.
torch::Tensor top_k(const torch::Tensor& score_TU, int64_t k);

/// Returns bool [T], true for the counts[g] lowest scores among the tokens [offsets[g], offsets[g +
/// 1]) of each group g; among ties for the higher tokens. A NaN counts as minus infinity.
torch::Tensor mark_lowest(const torch::Tensor& score_T, const std::vector<int64_t>& offsets,
                          const std::vector<int64_t>& counts);

}  // namespace shoal
