#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launch/recipe/recipe.h"
#include "launch/runs/run_lock.h"
#include "parallel/comm/communicator.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// The folder that a training writes to. Only rank 0 writes, except logs and checkpoint shards.
struct RunFolder {
  std::string path;
  bool resume = false;  ///< continue the run in the folder if it has a checkpoint
  std::shared_ptr<const RunLock> lock = nullptr;  ///< rank 0 only: held by this job

  std::string checkpoints() const { return path + "/ckpt"; }
  std::string logs() const { return path + "/log"; }
  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// Chooses, locks and creates the folder of a run. Rank 0 decides for all. Collective. `files` must
/// outlive the result; `tell` gets lines for the user. If the folder is not empty:
/// - kNew takes the first free of path, path-2, path-3 …
/// - kFail accepts only the remains of a start that failed before it wrote records.
/// - kOverwrite accepts such remains or a run, if no other files are in the folder, and removes the
///   contents while it holds the new run's lock.
/// - kResume continues the run. If the run has no checkpoint, kResume renames the run's records to
///   NAME.attempt-N, N = 1, 2, …, reports so, and starts anew. If there is no run, it reports the
///   one whose name is most similar.
/// Throws, on every rank, ConfigError if the folder is not accepted, Error (exit 15) if a job is
/// using it, StorageError if it cannot be created.
RunFolder open_run_folder(const std::string& path, OnExisting policy, Communicator& world,
                          FileSystem& files, const std::function<void(const std::string&)>& tell);

/// Throws as open_run_folder would if the folder is not accepted; changes nothing. Collective.
void check_run_folder(const std::string& path, OnExisting policy, Communicator& world);

/// The folder of a run, run.root/run.name.
std::string run_path(const RunOptions& run);

/// Returns "; did you mean 'PATH'?" with an existing path other than the given one: that path below
/// the default of run.root, or with each part replaced by the nearest name; "" if there is none.
std::string did_you_mean_path(const std::string& path);

/// Throws Error (exit 2) with a suggestion if the path of a run or checkpoint does not exist;
/// CheckpointError or StorageError if the system cannot tell.
void require_path(const std::string& path);

/// Begins the end of the names of records, NAME.attempt-N, that kResume keeps of earlier attempts.
inline constexpr std::string_view kAttempt = ".attempt-";

/// True for the name of a file that runs write into their folder, also as an attempt's record.
bool is_run_file(const std::string& name);

/// Returns why a folder may not be removed as a run's, "" if it may: it holds what a run, or a
/// start or removal that was interrupted, has written, and nothing else.
std::string why_not_a_run(const std::string& path);

/// Removes what is in a run's folder but the lock, which the caller holds. Throws StorageError.
void remove_run(FileSystem& files, const std::string& path);

}  // namespace shoal
