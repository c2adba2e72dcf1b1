#pragma once

#include <cstdint>

#include "launch/recipe/recipe.h"
#include "runtime/data/data_shape.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// Memory of a few training steps of one process, in bytes.
struct ProbedMemory {
  int64_t tensors = 0;  ///< peak of tensors and their cache, prefetched batches included
  int64_t process = 0;  ///< the rest: program, libraries and their scratch memory
};

/// Measures memory for `shoal check --memory`: trains two steps of `samples` generated samples, of
/// `sequence` tokens if the data have tokens, on the CPU and one rank, with the recipe's model,
/// optimizer and rules. Counts other threads' tensors too. Call recycle_tensor_memory first
/// (runtime/device/tensor_memory.h), else `tensors` is 0. Throws as build_model and Session.
ProbedMemory probe_memory(const Recipe& recipe, const DataSource& source, int64_t samples,
                          int64_t sequence);

/// Returns `shape` with `sequence` tokens, labelled ones in proportion; unchanged without tokens.
DataShape probed_shape(DataShape shape, int64_t sequence);

}  // namespace shoal
