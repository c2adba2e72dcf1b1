#pragma once

#include "launch/recipe.h"
#include "launch/run_folder.h"
#include "launch/session.h"
#include "parallel/checkpoint.h"
#include "runtime/log.h"

namespace shoal {

struct ResumeOptions {
  bool override_fixed = false;  ///< resume although fixed recipe keys differ
  Log& log;
};

/// Gives the session its first state: the newest valid checkpoint of the run folder if the run is
/// resumed and has one, else the weights of model.init_from, else what the seed gave. Returns how
/// checkpoints are to be written from here. Collective. Throws Error (exit 12) if the recipe
/// differs from the checkpoint's, CheckpointError if none is valid.
CheckpointWriter::Options begin_or_resume(Session& session, const Recipe& recipe,
                                          const RunFolder& folder, const ResumeOptions& options);

/// Loads the parameters of `parameters` from a checkpoint or run, and nothing else of it.
/// Returns the checkpoint's path. Collective.
std::string load_weights(const std::string& path, const std::vector<Parameter>& parameters,
                         Communicator& world);

}  // namespace shoal
