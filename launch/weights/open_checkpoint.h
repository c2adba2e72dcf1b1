#pragma once

#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/rank_grid.h"
#include "sparse/kernels/break_even.h"

namespace shoal {

/// Which checkpoint to open, and changes of its recipe.
struct CheckpointChoice {
  std::string path;                         ///< a checkpoint, or a run: its newest checkpoint
  bool best = false;                        ///< the run's best checkpoint instead
  std::vector<std::string> overrides = {};  ///< of the recipe in the checkpoint
  bool raw_weights = false;                 ///< not their averages, if the checkpoint has both
  bool override_model = false;              ///< --override, see add_model_override
};

/// Calls resolve_checkpoint, with its warnings on standard error.
std::string choose_checkpoint(const std::string& path, bool best, bool pass_unreadable);

/// A checkpoint's recipe, and the ranks that run its model.
struct OpenedCheckpoint {
  std::string path;
  Manifest manifest;
  Recipe recipe;
  bool raw_weights = false;
  bool override_model = false;
  RankGrid grid;
  BreakEvens break_evens = {};  ///< those of its training, else of this machine
};

/// Reads the recipe and binds this job's ranks to it, for commands that use a model without
/// training it: the recipe's `parallel` is ignored, experts are spread over all ranks. Collective.
/// Throws as resolve_checkpoint, ConfigError, and Error if ranks differ.
OpenedCheckpoint open_checkpoint(const CheckpointChoice& choice, const LaunchInfo& launch,
                                 const Environment& environment, Communicator& guard);

/// Opens a checkpoint for one process without other ranks, on the CPU even if run.device is cuda.
/// Throws as resolve_checkpoint, ConfigError, and Error as check_precision.
OpenedCheckpoint open_checkpoint_alone(const CheckpointChoice& choice,
                                       const Environment& environment);

/// Fills the model of the recipe, and has sparse kernels compute the products of its sparse layers
/// as sparsity.execution wants; returns how many. Collective. Throws as require_own_seed,
/// load_weights and SparseModel::run_by, and Error (exit 12) if the weights would compute
/// something else (describe_other_function), of which rank 0 warns under `override_model`.
int64_t load_model(const OpenedCheckpoint& opened, const BuiltModel& model);

}  // namespace shoal
