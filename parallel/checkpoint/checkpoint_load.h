#pragma once

#include <optional>
#include <string>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/communicator.h"
#include "runtime/module/state.h"

namespace shoal {

struct LoadOptions {
  /// Reads only what the state lists and ignores the checkpoint's other tensors and values.
  bool ignore_extra = false;
};

struct LoadedCheckpoint {
  std::string path;
  Manifest manifest;
};

/// Fills the state in place from the checkpoint at `path`, whatever number of ranks wrote it: each
/// rank reads what it lists, every tensor is checked against its checksum, and all ranks agree
/// before any returns. Collective; throws the same error on all ranks: CheckpointError (exit 20)
/// naming file, tensor and bytes; StorageError (exit 21) if the file cannot be read; Error (exit
/// 12), before anything is read, if names, dtypes or shapes differ from the model's. After an error
/// the tensors are unspecified; the values are unchanged.
LoadedCheckpoint load_checkpoint(const std::string& path, Stateful& state, Communicator& world,
                                 const LoadOptions& options = {});

/// Loads the newest valid checkpoint of `folder` (`<run>/ckpt`) and warns, on rank 0, of the
/// corrupt ones it passed over. Returns nothing if none was committed. `pass_unreadable`: also
/// passes over those that cannot be read, and renames them (set_aside). Collective; throws as
/// load_checkpoint, CheckpointError only if none is valid or a newer Shoal wrote one that would be
/// passed over.
std::optional<LoadedCheckpoint> load_newest(const std::string& folder, Stateful& state,
                                            Communicator& world, const Warn& warn,
                                            bool pass_unreadable = false);

/// The manifest of a checkpoint as rank 0 reads it. Collective; throws CheckpointError,
/// StorageError on all ranks.
Manifest read_manifest(const std::string& path, Communicator& world);

/// The manifest of the newest checkpoint of `folder` whose manifest can be read; for comparing
/// recipes before a state is loaded. Nothing if there is no checkpoint. Collective. Throws the
/// newest one's CheckpointError if none can be read, since a run must not start anew over
/// checkpoints; NewerFormatError rather than passing over a newer Shoal's; StorageError at one that
/// cannot be read, unless `pass_unreadable`.
std::optional<Manifest> read_newest_manifest(const std::string& folder, Communicator& world,
                                             bool pass_unreadable = false);

}  // namespace shoal
