#pragma once

#include <string>

#include "launch/recipe/recipe.h"
#include "launch/runs/run_folder.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/base/log.h"

namespace shoal {

struct ResumeOptions {
  /// Resume even if fixed recipe keys, the data or the tokenizer differ, and pass over checkpoints
  /// that cannot be read (StorageError). Damaged checkpoints are passed over in any case.
  bool override_fixed = false;
  Log& log;
};

/// Loads the weights that model.init_from names into the session and applies masks to them. Returns
/// a line for the log, "" without model.init_from. Collective.
std::string load_initial_weights(Session& session, const Recipe& recipe);

/// Puts the classes of the newest checkpoint into the recipe of a run that is to be resumed, where
/// it leaves them to the data; `pass_unreadable` passes over checkpoints that cannot be read. For a
/// run that starts from a head (model.init_from) of the same classes, puts them in the order of its
/// outputs, or names them, if the data has none and as many. Returns a warning on other classes or
/// the recipe's order, else "". Collective. Throws as read_newest_manifest, init_from.
std::string keep_classes(LoadedRecipe& loaded, Communicator& world, bool pass_unreadable);

/// Continues a run from the newest valid checkpoint of its folder, or begins it at step 0 if the
/// folder has no checkpoint. Returns options for writing further checkpoints. Collective.
///
/// With `run.on_existing: resume`, this function calls load_initial_weights if it begins the run.
/// Otherwise the caller must have called load_initial_weights before the folder was made, so that a
/// bad model.init_from fails before a folder is made or overwritten. Throws Error (exit 12) if
/// fixed recipe keys, the data or the tokenizer differ from the checkpoint's,
/// CheckpointError if none is valid, StorageError if the checkpoint to resume from cannot be read.
CheckpointWriter::Options begin_or_resume(Session& session, const Recipe& recipe,
                                          const RunFolder& folder, const ResumeOptions& options);

}  // namespace shoal
