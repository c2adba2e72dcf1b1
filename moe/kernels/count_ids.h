#pragma once

#include <torch/types.h>

#include <cstdint>

namespace shoal {

/// How often each of 0 to num_ids - 1 occurs in `ids`: int64 of any shape, negative ones are
/// ignored -> int64 [num_ids]. TORCH_CHECK on one beyond, on the CPU.
torch::Tensor count_ids(const torch::Tensor& ids, int64_t num_ids);

}  // namespace shoal
