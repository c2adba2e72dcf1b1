#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/checkpoint/checkpoint_reader.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Receives one line about something that went wrong without stopping the work.
using Warn = std::function<void(const std::string&)>;

/// Whether saves and removals make an entry of that name in a folder of checkpoints.
bool is_checkpoint_entry(const std::string& name, bool is_folder);

/// Steps of the checkpoints committed in `folder`, ascending; empty if there is no such folder.
/// Throws CheckpointError, StorageError if it cannot be read.
std::vector<int64_t> list_checkpoints(const std::string& folder);

/// The checkpoint with the largest score in `folder`, the earliest of equals; nothing if none has
/// one. Unreadable checkpoints, and those whose damage shows without reading their data, are passed
/// over with a line to `warn`.
std::optional<std::string> find_best(const std::string& folder, const Warn& warn = {});

/// The checkpoint that PATH names: itself, or for a run's folder or that folder's `ckpt`, the
/// newest committed there or, with `best`, the best undamaged one. `pass_unreadable`: checkpoints
/// with an unreadable byte are passed over too. `warn` receives a line for each one passed over.
/// Throws CheckpointError if there is none, StorageError.
std::string resolve_checkpoint(const std::string& path, bool best = false,
                               bool pass_unreadable = false, const Warn& warn = {});

/// The checkpoints that PATH names, in the order of their steps: itself, or all of a run's folder
/// or of that folder's `ckpt`. Throws CheckpointError as resolve_checkpoint.
std::vector<std::string> list_checkpoint_paths(const std::string& path);

/// Which checkpoints are kept when old ones are removed.
struct Retention {
  int64_t newest = 0;  ///< the step just committed and verified
  int64_t keep_last = 2;
  int64_t keep_best = 1;                ///< number of checkpoints with the best scores
  std::optional<int64_t> never_remove;  ///< the step this run resumed from
};

/// Removes the checkpoints that Retention does not keep, and those of later steps than the newest,
/// which the run abandoned by going back. Keeps a checkpoint whose manifest is damaged or cannot be
/// read, and a damaged one that would be the best; returns the reason, "" if there is none. Throws
/// StorageError.
std::string remove_old_checkpoints(FileSystem& files, const std::string& folder,
                                   const Retention& retention);

/// Renames the unreadable checkpoint of a step to step-XXXXXXXX.unreadable, so that it is neither
/// removed nor replaced. Returns its path. Throws StorageError.
std::string set_aside(FileSystem& files, const std::string& folder, int64_t step);

/// Removes what interrupted saves and removals have left. Throws StorageError.
void remove_leftovers(FileSystem& files, const std::string& folder);

/// Removes a folder and the files in it. Throws StorageError.
void remove_folder(FileSystem& files, const std::string& path);

}  // namespace shoal
