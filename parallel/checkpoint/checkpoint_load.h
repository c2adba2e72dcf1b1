#pragma once

#include <optional>
#include <string>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/manifest.h"
#include "parallel/comm/communicator.h"
#include "runtime/module/state.h"

namespace shoal {

struct LoadOptions {
  /// If true, tensors and values that the state does not list are ignored, else they are an error.
  bool ignore_extra = false;
};

struct LoadedCheckpoint {
  std::string path;
  Manifest manifest;
};

/// Fills `state` in place from the checkpoint at `path`, written by any number of ranks: each rank
/// reads the tensors that its state lists and checks each against its checksum. Collective. Throws
/// the same error on all ranks: CheckpointError (exit 20), naming file, tensor and bytes, if the
/// checkpoint is damaged; StorageError (exit 21) if a file cannot be read; Error (exit 12), before
/// any tensor is read, if names, dtypes or shapes differ from the state's. After an error the
/// tensors are unspecified and the values (integers, reals, texts) unchanged.
LoadedCheckpoint load_checkpoint(const std::string& path, Stateful& state, Communicator& world,
                                 const LoadOptions& options = {});

/// Loads the newest valid checkpoint of `folder` (`<run>/ckpt`) into `state`. Passes over damaged
/// ones and calls `warn` on rank 0 for each. Returns nullopt if the folder has no checkpoint.
/// `pass_unreadable`: also passes over unreadable ones, and renames them (set_aside) once another
/// is loaded. Collective. Throws StorageError at the first unreadable one; with `pass_unreadable`,
/// if some are unreadable and none is valid. Throws CheckpointError if all are damaged,
/// NewerFormatError at one of a newer program version, Error (exit 12) like load_checkpoint.
std::optional<LoadedCheckpoint> load_newest(const std::string& folder, Stateful& state,
                                            Communicator& world, const Warn& warn,
                                            bool pass_unreadable = false);

/// Reads the manifest (list of contents) of the checkpoint at `path` on rank 0 and returns it on
/// every rank. Collective. Throws CheckpointError, StorageError on all ranks.
Manifest read_manifest(const std::string& path, Communicator& world);

/// Returns the newest valid manifest among the checkpoints of `folder`; nullopt if there is no
/// checkpoint. Passes over damaged manifests, with `pass_unreadable` also over unreadable ones.
/// Collective. Throws StorageError at an unreadable manifest without `pass_unreadable`,
/// NewerFormatError at a manifest of a newer program version, and the newest checkpoint's error if
/// no manifest is valid.
std::optional<Manifest> read_newest_manifest(const std::string& folder, Communicator& world,
                                             bool pass_unreadable = false);

}  // namespace shoal
