#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/checkpoint/checkpoint_reader.h"
#include "runtime/files/file_system.h"

namespace shoal {

// `folder` is a run's `<run>/ckpt`, in which each checkpoint is a folder step-XXXXXXXX. "Damaged"
// means wrong contents (CheckpointError), "unreadable" that reading fails (StorageError).

/// Receives one line about a problem that does not stop the work.
using Warn = std::function<void(const std::string&)>;

/// True for a folder (`is_folder`) named like a checkpoint, one set aside, or a temporary folder.
bool is_checkpoint_entry(const std::string& name, bool is_folder);

/// Returns the steps of the checkpoints in `folder`, ascending; empty if there is no such folder.
/// Throws StorageError if reading fails, CheckpointError if the path is invalid (a loop of links).
std::vector<int64_t> list_checkpoints(const std::string& folder);

/// Returns the path of the checkpoint with the largest evaluation score, the earliest of equals;
/// nullopt without scores. Skips unreadable and damaged checkpoints and warns; reads no tensors.
std::optional<std::string> find_best(const std::string& folder, const Warn& warn = {});

/// Returns the path of the checkpoint that a user's `path` means. A checkpoint's path means itself.
/// A run's folder, or its `ckpt`, means the newest checkpoint in it or, with `best`, the one with
/// the largest score. `warn` gets a line for each checkpoint that is skipped. By flags:
/// - without flags: nothing is read, none is skipped;
/// - `best`: all but tensors' bytes is checked, damaged ones are skipped;
/// - `pass_unreadable`: all bytes are checked, unreadable ones are skipped;
/// - both: all bytes are checked, damaged and unreadable ones are skipped.
/// Throws CheckpointError or StorageError for a damaged or unreadable one that is not skipped, and
/// if none is left; CheckpointError if `ckpt` holds no checkpoint.
std::string resolve_checkpoint(const std::string& path, bool best = false,
                               bool pass_unreadable = false, const Warn& warn = {});

/// The error of a damaged checkpoint, with the next older checkpoint beside it of which all but
/// tensors' bytes is sound. Call in the error's handler, which it rethrows if it has a hint.
CheckpointError naming_older(const CheckpointError& error, const std::string& path);

/// Returns the paths of all checkpoints that a user's `path` means, by step: all of a run's folder
/// or of its `ckpt`, or the checkpoint itself. Throws CheckpointError if a run has none.
std::vector<std::string> list_checkpoint_paths(const std::string& path);

/// Which checkpoints are kept when old ones are removed.
struct Retention {
  int64_t newest = 0;                   ///< the step just committed and verified
  int64_t keep_last = 2;                ///< number of newest checkpoints
  int64_t keep_best = 1;                ///< number of checkpoints with the best scores
  std::optional<int64_t> never_remove;  ///< the step this run resumed from
};

/// Removes the checkpoints that `retention` does not keep, and those of steps after `newest`, which
/// the run abandoned by going back. Also keeps checkpoints with a damaged or unreadable manifest,
/// since their scores are unknown. Checks the best-scored ones, except for tensors' bytes, until
/// keep_best are sound, and keeps the faulty ones among them. Returns the errors of checkpoints
/// kept only for a fault, or "". Throws StorageError.
std::string remove_old_checkpoints(FileSystem& files, const std::string& folder,
                                   const Retention& retention);

/// Renames the unreadable checkpoint of a step to step-XXXXXXXX.unreadable, so that it is neither
/// removed nor replaced. Returns the new path. Throws StorageError.
std::string set_aside(FileSystem& files, const std::string& folder, int64_t step);

/// Removes the temporary folders of interrupted saves and removals. Throws StorageError.
void remove_leftovers(FileSystem& files, const std::string& folder);

/// Removes a folder with all that is in it, or a file. Does not follow links. Throws StorageError.
void remove_folder(FileSystem& files, const std::string& path);

}  // namespace shoal
