#pragma once

#include <torch/types.h>

#include <cstdint>

namespace shoal {

/// Number of occurrences of each of 0 to num_ids - 1 in `ids`, int64 of any shape: int64 [num_ids].
/// Negative ids are ignored. TORCH_CHECK on ids >= num_ids, on the CPU.
torch::Tensor count_ids(const torch::Tensor& ids, int64_t num_ids);

}  // namespace shoal
