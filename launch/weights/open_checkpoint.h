#pragma once

#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/rank_grid.h"
#include "sparse/kernels/break_even.h"

namespace shoal {

/// Name under which a checkpoint's manifest stores the folder that its training was started in.
inline constexpr const char* kStartedIn = "started_in";

/// Which checkpoint to open, and changes of its recipe.
struct CheckpointChoice {
  std::string path;                         ///< a checkpoint, or a run: its newest checkpoint
  bool best = false;                        ///< the run's best checkpoint instead
  std::vector<std::string> overrides = {};  ///< `key=value`, of the recipe in the checkpoint
  bool raw_weights = false;                 ///< take weights, not their averages, if both are there
  bool override_model = false;              ///< --override: take weights of another model too,
                                            ///< and of a run the newest or best that can be read
};

/// Returns the path of the checkpoint to open: `path` itself or, if that is a run, its newest, with
/// `best` its best one. `override_model`: passes over checkpoints that cannot be read. Warns on
/// standard error of each one passed over. Throws Error (exit 2) with a suggestion if there is no
/// such path, CheckpointError if there is no checkpoint, StorageError.
std::string choose_checkpoint(const CheckpointChoice& choice);

/// Opens the files of the checkpoint that choose_checkpoint returns. Throws as it, and
/// CheckpointError with a usable older one in the hint, StorageError.
CheckpointReader open_reader(const CheckpointChoice& choice);

/// Key of Manifest::written_by in checkpoints of imported weights; the value is their format.
inline constexpr const char* kImportedAs = "imported_as";

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
/// recipe and binds this job's ranks to it. An override of data.source keeps what the model was
/// trained for (read_changed). Files that relative paths of the recipe name are also looked for in
/// the folder that the training was started in. Rank 0 notes both on standard error. The recipe's
/// `parallel` is ignored: experts are spread over all ranks. Collective over `guard`, the
/// communicator of all ranks. Throws CheckpointError, StorageError, ConfigError, and Error if ranks
/// differ in installation or recipe.
OpenedCheckpoint open_checkpoint(const CheckpointChoice& choice, const LaunchInfo& launch,
                                 const Environment& environment, Communicator& guard);

/// Opens a checkpoint for one process without other ranks, on the CPU even if run.device is cuda.
/// Throws as open_checkpoint, and Error (exit 11) for bfloat16 on a processor without it.
OpenedCheckpoint open_checkpoint_alone(const CheckpointChoice& choice,
                                       const Environment& environment);

/// Fills the model, built for the opened recipe, and chooses by sparsity.execution which of its
/// sparse layers run by sparse kernels. Returns the number of these layers. Collective. Throws as
/// load_weights; ConfigError for layers that these kernels cannot run; Error (exit 12) if a router
/// assigns tokens by run.seed and the recipe's differs from the checkpoint's, or if the model
/// computes something else than the checkpoint's own (describe_other_function). `override_model`
/// allows another model: rank 0 then warns on standard error.
int64_t load_model(const OpenedCheckpoint& opened, const BuiltModel& model);

}  // namespace shoal
