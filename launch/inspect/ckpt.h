#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

#include "launch/weights/open_checkpoint.h"
#include "runtime/base/error.h"

namespace shoal {

// Subcommands that check and compare checkpoints; they need no MPI, GPU or model. PATH is the
// folder of a checkpoint, or of a run, whose newest complete checkpoint is then used. They throw
// CheckpointError (exit 20) if files are damaged, StorageError (exit 21) if files cannot be read.

/// Exit code of `ckpt diff` and `inspect --diff` if two checkpoints differ.
constexpr ExitCode kDiffers{1};

/// JSON with step, score, run and size of the checkpoint in the folder `path`.
nlohmann::ordered_json describe_checkpoint(const std::string& path, const Manifest& manifest);

/// Arguments of the `shoal ckpt` subcommands.
struct CheckpointArguments {
  CheckpointChoice checkpoint;  ///< PATH, --best and --override
  std::string other = {};       ///< the second checkpoint of `diff`
  bool json = false;            ///< prints one JSON object
};

/// `shoal ckpt verify PATH`: checks every byte. Exit 0, 20 if damaged, or 21 if unreadable.
ExitCode checkpoint_verify(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt ls PATH`: lists a run's checkpoints, or the one at PATH, with step, score and size,
/// or with the fault if a file is missing or has a wrong size (exit 20) or cannot be read (exit
/// 21). Reads no tensor data.
ExitCode checkpoint_list(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt diff PATH OTHER`: lists the tensors and values that differ. Exit 0 if none do, else
/// kDiffers; the JSON has `equal`.
ExitCode checkpoint_diff(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt digest PATH`: prints a hash, `sha256:…`, over tensors, step and data cursor (samples
/// trained on). Independent of the run, the number of ranks and the recipe.
ExitCode checkpoint_digest(const CheckpointArguments& arguments, std::ostream& out);

}  // namespace shoal
