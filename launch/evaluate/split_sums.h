#pragma once

#include <vector>

#include "models/task.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Adds a batch's sums to those of the batches before it; the first `totals` is empty. TORCH_CHECK
/// that each batch has the same number of sums.
void add_sums(const std::vector<NamedSum>& batch, std::vector<NamedSum>& totals);

/// Adds up all ranks' sums: one all-reduce. Collective.
void sum_over_ranks(std::vector<NamedSum>& totals, Communicator& world);

}  // namespace shoal
