#pragma once

#include <string>

#include "launch/job/recipe.h"
#include "launch/train/build_model.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Fills those of the model's weights that `init_from` takes of the checkpoint, after renaming: the
/// first entry of `rename` that a name begins with replaces that part of it. Returns a line
/// for the log: how many were taken, which of the model's keep their random values, and how many of
/// the checkpoint's have no place in the model. Collective. Throws Error (exit 12) if none was
/// taken, if a pattern matches nothing, or as load_checkpoint.
std::string load_some_weights(const std::string& checkpoint, const InitFrom& init_from,
                              const BuiltModel& model, Communicator& world);

}  // namespace shoal
