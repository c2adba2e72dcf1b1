#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launch/recipe/recipe.h"
#include "launch/runs/run_lock.h"
#include "parallel/comm/communicator.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Folder that a run writes to. Only rank 0 writes there, except for logs and checkpoint shards.
struct RunFolder {
  std::string path;
  bool resume = false;  ///< true to continue an earlier run, if it has a checkpoint
  std::shared_ptr<const RunLock> lock = nullptr;  ///< on rank 0: held by this job

  std::string checkpoints() const { return path + "/ckpt"; }
  std::string logs() const { return path + "/log"; }
  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// Chooses, locks and creates a run's folder; rank 0 decides, all ranks agree. Collective. `files`
/// must outlive the result; `tell`: as in RunLock.
///
/// kNew takes the first unused of path, path-2, path-3 …; kOverwrite removes the old content, under
/// the new run's lock. kFail continues in a folder left by a start that failed before it wrote
/// records. kResume of a run without checkpoints renames its records to NAME.attempt-N, N = 1, 2,
/// …, reports this, and starts anew. Throws, on every rank: ConfigError under kFail if the folder
/// is not empty, and under kOverwrite if it holds no run or anything that runs do not write (which
/// is named), Error (exit 15) if a job works in the folder, StorageError if it cannot be created.
RunFolder open_run_folder(const std::string& path, OnExisting policy, Communicator& world,
                          FileSystem& files, const std::function<void(const std::string&)>& tell);

}  // namespace shoal
