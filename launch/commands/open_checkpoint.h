#pragma once

#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/job/recipe.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/rank_grid.h"

namespace shoal {

/// Which checkpoint, and how its recipe is changed.
struct CheckpointChoice {
  std::string path;                    ///< a checkpoint, or a run: its newest checkpoint
  bool best = false;                   ///< the run's best checkpoint instead
  std::vector<std::string> overrides;  ///< of the recipe in the checkpoint
};

/// A checkpoint's recipe, and the ranks that its model is to run on.
struct OpenedCheckpoint {
  std::string path;
  Manifest manifest;
  Recipe recipe;
  RankGrid grid;
};

/// Reads the recipe and binds this job's ranks to it, for commands that use a model and do not
/// train it: the recipe's `parallel` is ignored, experts are spread over all ranks. Collective.
/// Throws as agree_on_checkpoint, ConfigError, and Error where ranks differ.
OpenedCheckpoint open_checkpoint(const CheckpointChoice& choice, const LaunchInfo& launch,
                                 const Environment& environment, Communicator& guard);

}  // namespace shoal
