#pragma once

#include <functional>
#include <memory>
#include <string>

#include "launch/recipe/recipe.h"
#include "launch/runs/run_lock.h"
#include "parallel/comm/communicator.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Where a run writes. Only rank 0 writes here, but for logs and checkpoint shards.
struct RunFolder {
  std::string path;
  bool resume = false;  ///< an earlier run is to be continued if it has a checkpoint
  std::shared_ptr<const RunLock> lock = nullptr;  ///< on rank 0: held by this job

  std::string checkpoints() const { return path + "/ckpt"; }
  std::string logs() const { return path + "/log"; }
  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// Chooses, locks and creates a run's folder; rank 0 decides, all ranks agree. Collective. `files`
/// outlives the result; `tell` is as RunLock's.
///
/// kNew takes the first free of path, path-2, path-3 …; kOverwrite removes what was there, under
/// the new run's lock. kFail continues in what a start leaves behind that failed before its records
/// were written. kResume of a run without any checkpoint keeps its records as NAME.attempt-N, N =
/// 1, 2, …, and tells so: it starts anew. Throws, on every rank: ConfigError under kFail when the
/// folder is not empty and under kOverwrite when it holds no run or anything that no run writes
/// (which is named), Error (exit 15) when a job works in the folder, StorageError if it cannot be
/// created.
RunFolder open_run_folder(const std::string& path, OnExisting policy, Communicator& world,
                          FileSystem& files, const std::function<void(const std::string&)>& tell);

}  // namespace shoal
