#pragma once

#include <cstdint>

#include "launch/recipe/recipe.h"
#include "runtime/data/data_shape.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// What a few training steps of one process held.
struct ProbedMemory {
  int64_t tensors = 0;  ///< most that tensors and what is kept for them took, prefetched ones too
  int64_t process = 0;  ///< all else: the program, its libraries and their scratch memory
};

/// Trains two steps of `samples` samples on this machine's processor, on one rank, with the
/// recipe's model, optimizer and rules, and drawn samples of `sequence` tokens where the data have
/// tokens. Whatever else the process does with tensors meanwhile counts as well. After
/// recycle_tensor_memory. Throws what building the model and training throw.
ProbedMemory probe_memory(const Recipe& recipe, const DataSource& source, int64_t samples,
                          int64_t sequence);

/// The data's shape with so many tokens.
DataShape probed_shape(DataShape shape, int64_t sequence);

}  // namespace shoal
