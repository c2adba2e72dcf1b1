#pragma once

#include <string>

#include "parallel/comm/communicator.h"

namespace shoal {

/// What to do when the run folder holds an earlier run (recipe key run.on_existing).
enum class OnExisting { kFail, kResume, kNew, kOverwrite };

/// Where a run writes. Only rank 0 writes here, but for logs and checkpoint shards.
struct RunFolder {
  std::string path;
  bool resume = false;  ///< an earlier run is to be continued if it has a checkpoint

  std::string checkpoints() const { return path + "/ckpt"; }
  std::string logs() const { return path + "/log"; }
  std::string file(const std::string& name) const { return path + "/" + name; }
};

/// Chooses and creates `<root>/<name>`; rank 0 decides, all ranks agree. Collective.
/// kNew takes the first free of name, name-2, name-3 …; kOverwrite removes what was there. kFail
/// goes on in what a start leaves behind that failed before its records were written. Throws, on
/// every rank: ConfigError under kFail when the folder is not empty and under kOverwrite when it
/// holds no run or anything that no run writes (which is named), Error (exit 15) when a job works
/// in what is to be overwritten, StorageError if the folder cannot be created.
RunFolder open_run_folder(const std::string& root, const std::string& name, OnExisting policy,
                          Communicator& world);

}  // namespace shoal
