#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "launch/model/build_model.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "sparse/kernels/break_even.h"
#include "sparse/training/prune_grow.h"

namespace shoal {

/// Throws ConfigError that names each layer which sparsity.execution: sparse asks of sparse kernels
/// and which these cannot run. Needs no tensors: the model may be on `meta`.
void check_execution(const Recipe& recipe, const std::vector<SparseLayer>& layers);

/// Lets sparse kernels compute the products of the sparse layers by sparsity.execution; by
/// default where they are faster by `break_evens`. They follow the masks of a training. Throws as
/// check_execution.
void run_sparse_layers(const Recipe& recipe, const BuiltModel& model, const BreakEvens& break_evens,
                       PruneGrow& prune_grow);

/// Lets sparse kernels compute the products of a model in use, not in training, with the masks of
/// the checkpoint that its weights are from. A layer without a mask there, and one whose
/// permutation is soft, takes dense products. Returns how many layers sparse kernels run, for some
/// number of tokens at least. Collective. Throws as check_execution and load_checkpoint.
int64_t run_saved_sparse_layers(const Recipe& recipe, const BuiltModel& model,
                                const BreakEvens& break_evens, const LoadedCheckpoint& checkpoint,
                                Communicator& world);

}  // namespace shoal
