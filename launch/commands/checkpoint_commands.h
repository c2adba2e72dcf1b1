#pragma once

#include <ostream>
#include <string>

#include "runtime/base/error.h"

/// The subcommands that look into checkpoints, without MPI, GPU or model. PATH is a checkpoint's
/// folder, or a run's folder, which means the newest one committed there. They throw
/// CheckpointError (exit 20) if what they need cannot be read.
namespace shoal {

/// Two checkpoints differ: the exit code that `diff` and `cmp` have for it.
constexpr ExitCode kDiffers{1};

struct CheckpointArguments {
  std::string path;
  std::string other = {};  ///< the second checkpoint of `diff`
  bool best = false;       ///< of a run's folder, the checkpoint with the best score
  bool json = false;       ///< one JSON object on `out`
};

/// `shoal ckpt verify PATH`: checks every byte. Exit 0 or 20.
ExitCode checkpoint_verify(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt ls PATH`: the checkpoints of a run, or the one at PATH, with step, score and size;
/// of those that lack a file or have one of a wrong size, what is wrong (exit 20). Reads no data.
ExitCode checkpoint_list(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt diff PATH OTHER`: which tensors and values differ. Exit 0 if none do, else kDiffers;
/// the JSON has `equal`.
ExitCode checkpoint_diff(const CheckpointArguments& arguments, std::ostream& out);
/// `shoal ckpt digest PATH`: `sha256:…` of tensors, step and data cursor: equal for equal
/// content, whatever the run, the world and the recipe were.
ExitCode checkpoint_digest(const CheckpointArguments& arguments, std::ostream& out);

struct InspectArguments {
  std::string path;
  std::string diff = {};  ///< compare with this checkpoint, number by number
  bool tensors = false;   ///< list every tensor with its range and norm
  bool best = false;
  bool json = false;
  bool experts = false;  ///< how the run's experts were loaded at the checkpoint's step
  /// With `experts`: draws their loads up to that step into this file, a name in .svg, which is
  /// replaced.
  std::string heat_map = {};
};

/// `shoal inspect PATH [--tensors | --diff OTHER | --experts [--heat-map FILE.svg]]`: what a
/// checkpoint holds. `--diff` ends as `ckpt diff` does. The experts are in experts.jsonl of its
/// run; DataError (exit 13) if that has no record up to its step. StorageError (exit 21) if the
/// heat map cannot be written.
ExitCode inspect(const InspectArguments& arguments, std::ostream& out);

}  // namespace shoal
