#pragma once

#include <ostream>
#include <string>

#include "runtime/base/error.h"

namespace shoal {

// The subcommands for checkpoints work without MPI, GPU or model. PATH is a checkpoint's folder, or
// a run's folder, which means the newest one committed there. They throw CheckpointError (exit 20)
// if what they need is damaged, StorageError (exit 21) if it cannot be read.

/// Two checkpoints differ: the exit code that `diff` and `cmp` have for it.
constexpr ExitCode kDiffers{1};

struct CheckpointArguments {
  std::string path;
  std::string other = {};        ///< the second checkpoint of `diff`
  bool best = false;             ///< of a run's folder, the checkpoint with the best score
  bool pass_unreadable = false;  ///< of a run's folder, the newest or best that can be read
  bool json = false;             ///< one JSON object on `out`
};

/// `shoal ckpt verify PATH`: checks every byte. Exit 0, 20, or 21 if it cannot be read.
ExitCode checkpoint_verify(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt ls PATH`: the checkpoints of a run, or the one at PATH, with step, score and size;
/// of those that lack a file or have one of a wrong size, what is wrong (exit 20), or why they
/// cannot be read (exit 21). Reads no data.
ExitCode checkpoint_list(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt diff PATH OTHER`: which tensors and values differ. Exit 0 if none do, else kDiffers;
/// the JSON has `equal`.
ExitCode checkpoint_diff(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt digest PATH`: `sha256:…` of tensors, step and data cursor: equal for equal
/// content, whatever the run, the world and the recipe were.
ExitCode checkpoint_digest(const CheckpointArguments& arguments, std::ostream& out);

}  // namespace shoal
