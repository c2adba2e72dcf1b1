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

/// The checkpoint of the largest score in `folder`, the earliest of equals; nothing if none has
/// one. Those that are damaged, as far as their data need not be read, or cannot be read do not
/// count; `warn` is told of them.
std::optional<std::string> find_best(const std::string& folder, const Warn& warn = {});

/// The checkpoint that PATH means: itself, or if it is a run's folder or that folder's `ckpt`, the
/// newest committed there, or the best, for which damaged ones do not count. `pass_unreadable`: one
/// of which some byte cannot be read does not count either. `warn` is told of what does not count.
/// Throws CheckpointError if there is none, StorageError.
std::string resolve_checkpoint(const std::string& path, bool best = false,
                               bool pass_unreadable = false, const Warn& warn = {});

/// Those that PATH means, in the order of their steps: itself, or all of a run's folder or of that
/// folder's `ckpt`. Throws CheckpointError as resolve_checkpoint.
std::vector<std::string> list_checkpoint_paths(const std::string& path);

/// What stays when old checkpoints go.
struct Retention {
  int64_t newest = 0;  ///< the step just committed and verified
  int64_t keep_last = 2;
  int64_t keep_best = 1;                ///< by score
  std::optional<int64_t> never_remove;  ///< the step this run resumed from
};

/// Removes the checkpoints that need not stay, and those of later steps than the newest, which the
/// run has abandoned by going back. One whose manifest is damaged or cannot be read stays, as does
/// a damaged one that would be the best; returns why, "" if there is none. Throws StorageError.
std::string remove_old_checkpoints(FileSystem& files, const std::string& folder,
                                   const Retention& retention);

/// Gives the checkpoint of a step, which cannot be read, a name that is no checkpoint's, so that
/// nothing removes or replaces it: step-XXXXXXXX.unreadable. Returns its path. Throws StorageError.
std::string set_aside(FileSystem& files, const std::string& folder, int64_t step);

/// Removes what saves and removals that were cut short have left. Throws StorageError.
void remove_leftovers(FileSystem& files, const std::string& folder);

/// Removes a folder and the files in it. Throws StorageError.
void remove_folder(FileSystem& files, const std::string& path);

}  // namespace shoal
