#pragma once

#include <functional>
#include <memory>
#include <string>

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

/// Chooses, locks and creates the folder of a run, by `policy` (run.on_existing) if it exists. Rank
/// 0 decides for all. Collective. `files` must outlive the result; `tell` gets lines for the user.
///
/// kNew takes the first free of path, path-2, path-3 …; kOverwrite removes the old contents, under
/// the new run's lock; kFail accepts only an empty folder or the remains of a start that failed
/// before it wrote records. kResume of a run without checkpoints starts anew: it renames its
/// records to NAME.attempt-N, N = 1, 2, …, and reports so. Throws, on every rank: ConfigError under
/// kFail if the folder is not empty, and under kOverwrite if it is no run's or holds files that no
/// run writes; Error (exit 15) if a job is using the folder; StorageError if it cannot be created.
RunFolder open_run_folder(const std::string& path, OnExisting policy, Communicator& world,
                          FileSystem& files, const std::function<void(const std::string&)>& tell);

}  // namespace shoal
