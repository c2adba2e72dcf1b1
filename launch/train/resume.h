#pragma once

#include <string>

#include "launch/recipe/recipe.h"
#include "launch/runs/run_folder.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/base/log.h"

namespace shoal {

struct ResumeOptions {
  /// Resume although fixed recipe keys differ, and pass over checkpoints that cannot be read.
  bool override_fixed = false;
  Log& log;
};

/// load_initial_weights (init_from.h) of a session, whose rules then follow the weights.
std::string load_initial_weights(Session& session, const Recipe& recipe);

/// Gives a run that is to be resumed its first state: the newest valid checkpoint of its folder if
/// there is any, else the weights of model.init_from. Returns how checkpoints are to be written
/// from here. Collective. Throws Error (exit 12) if the recipe, the data or the tokenizer differs
/// from the checkpoint's, CheckpointError if none is valid, StorageError if the one to be resumed
/// from cannot be read.
CheckpointWriter::Options begin_or_resume(Session& session, const Recipe& recipe,
                                          const RunFolder& folder, const ResumeOptions& options);

}  // namespace shoal
