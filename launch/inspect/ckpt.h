#pragma once

#include <ostream>
#include <string>

#include "runtime/base/error.h"

namespace shoal {

// The checkpoint subcommands need no MPI, GPU or model. PATH is a checkpoint's folder, or a run's
// folder for the newest one committed there. They throw CheckpointError (exit 20) if data they need
// is damaged, StorageError (exit 21) if it cannot be read.

/// Exit code of `diff` and `cmp` for checkpoints that differ.
constexpr ExitCode kDiffers{1};

/// Arguments of the `shoal ckpt` subcommands.
struct CheckpointArguments {
  std::string path;
  std::string other = {};        ///< the second checkpoint of `diff`
  bool best = false;             ///< for a run's folder, the checkpoint with the best score
  bool pass_unreadable = false;  ///< for a run's folder, the newest or best that can be read
  bool json = false;             ///< one JSON object on `out`
};

/// `shoal ckpt verify PATH`: checks every byte. Exit 0, 20 if damaged, or 21 if unreadable.
ExitCode checkpoint_verify(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt ls PATH`: the checkpoints of a run, or the one at PATH, with step, score and size;
/// for damaged ones (missing files, wrong sizes) the problem (exit 20), for unreadable ones the
/// reason (exit 21). Reads no data.
ExitCode checkpoint_list(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt diff PATH OTHER`: lists the tensors and values that differ. Exit 0 if none do, else
/// kDiffers; the JSON has `equal`.
ExitCode checkpoint_diff(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt digest PATH`: `sha256:…` of tensors, step and data cursor: equal for equal content,
/// independent of run, number of ranks and recipe.
ExitCode checkpoint_digest(const CheckpointArguments& arguments, std::ostream& out);

}  // namespace shoal
