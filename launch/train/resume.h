#pragma once

#include <string>

#include "launch/recipe/recipe.h"
#include "launch/runs/run_folder.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/base/log.h"

namespace shoal {

struct ResumeOptions {
  /// Resume even if fixed recipe keys differ, and pass over unreadable checkpoints.
  bool override_fixed = false;
  Log& log;
};

/// Calls load_initial_weights (init_from.h) for a session, and lets its rules follow the weights.
std::string load_initial_weights(Session& session, const Recipe& recipe);

/// Initialises a run that may be resumed: from the newest valid checkpoint of its folder, else from
/// model.init_from. Returns options for writing further checkpoints. Collective. Throws Error (exit
/// 12) if the recipe, the data or the tokenizer differs from the checkpoint's, CheckpointError if
/// none is valid, StorageError if the one to resume from cannot be read.
CheckpointWriter::Options begin_or_resume(Session& session, const Recipe& recipe,
                                          const RunFolder& folder, const ResumeOptions& options);

}  // namespace shoal
