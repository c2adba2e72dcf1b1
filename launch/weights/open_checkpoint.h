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
  std::vector<std::string> overrides = {};  ///< `key=value`, of the recipe in the checkpoint
  bool raw_weights = false;                 ///< take weights, not their averages, if both are there
  bool override_model = false;              ///< --override: take weights of another model too
};

/// Returns the checkpoint that `path` names: itself, or for a run its newest, with `best` its best.
/// `pass_unreadable`: passes over unreadable ones. Warns on standard error of each passed over.
/// Throws CheckpointError if there is none, StorageError.
std::string choose_checkpoint(const std::string& path, bool best, bool pass_unreadable);

/// A checkpoint's recipe, and the ranks that run its model.
struct OpenedCheckpoint {
  std::string path;
  Manifest manifest;
  Recipe recipe;
  bool raw_weights = false;
  bool override_model = false;
  RankGrid grid;
  BreakEvens break_evens = {};  ///< densities below which sparse kernels are used
};

/// Opens a checkpoint for commands that use its model without training it, such as eval: reads the
/// recipe and binds this job's ranks to it. Its `parallel` is ignored, experts are spread over all
/// ranks. Collective over `guard`, all ranks. Throws CheckpointError, StorageError, ConfigError,
/// and Error if ranks differ.
OpenedCheckpoint open_checkpoint(const CheckpointChoice& choice, const LaunchInfo& launch,
                                 const Environment& environment, Communicator& guard);

/// Opens a checkpoint for one process without other ranks, on the CPU even if run.device is cuda.
/// Throws the errors above, and Error (exit 11) for bfloat16 on a processor without it.
OpenedCheckpoint open_checkpoint_alone(const CheckpointChoice& choice,
                                       const Environment& environment);

/// Fills the model, built for the opened recipe, and has sparse kernels compute the products of its
/// sparse layers as sparsity.execution asks; returns how many. Collective. Throws as load_weights;
/// ConfigError for layers that these kernels cannot run; Error (exit 12) if a router assigns tokens
/// by another run.seed, or if the weights would compute something else (describe_other_function),
/// of which rank 0 only warns under `override_model`.
int64_t load_model(const OpenedCheckpoint& opened, const BuiltModel& model);

}  // namespace shoal
