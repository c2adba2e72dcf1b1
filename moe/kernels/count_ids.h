#pragma once

#include <torch/types.h>

#include <cstdint>

namespace shoal {

/// Returns how often each of 0 to num_ids - 1 (experts) occurs in `ids`, int64 of any shape: int64
/// [num_ids]. Negative ids are ignored. On the CPU TORCH_CHECK on ids >= num_ids.
torch::Tensor count_ids(const torch::Tensor& ids, int64_t num_ids);

}  // namespace shoal
