#pragma once

#include <vector>

#include "launch/train/build_model.h"
#include "sparse/kernels/break_even.h"
#include "sparse/prune_grow.h"

namespace shoal {

/// Throws ConfigError that names each layer which sparsity.execution: sparse asks of sparse kernels
/// and which these cannot run. Needs no tensors: the model may be on `meta`.
void check_execution(const Recipe& recipe, const std::vector<SparseLayer>& layers);

/// Lets sparse kernels compute the products of the sparse layers by sparsity.execution; by
/// default where they are faster by `break_evens`. Throws as check_execution.
void run_sparse_layers(const Recipe& recipe, const BuiltModel& model, const BreakEvens& break_evens,
                       PruneGrow& prune_grow);

}  // namespace shoal
