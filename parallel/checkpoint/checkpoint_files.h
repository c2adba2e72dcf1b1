#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/manifest.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// One shard before it is written: the bytes before its data, and each tensor's place.
struct ShardLayout {
  std::string name;
  std::string header;
  std::vector<SafetensorsEntry> entries;
  uint64_t data_bytes() const { return entries.empty() ? 0 : entries.back().end; }
  uint64_t file_bytes() const { return header.size() + data_bytes(); }
};

/// Sorts the entries (wide dtypes first, then by name, so that every tensor is aligned) and lays
/// them out as shard `index` of `count`.
ShardLayout lay_out_shard(std::vector<SafetensorsEntry> entries, const std::string& run_id,
                          int64_t step, int64_t index, int64_t count);

/// What was written.
struct ShardReport {
  ManifestFile file;
  std::vector<uint32_t> tensor_crcs;  ///< in the order of the layout's entries
};

/// Writes a shard into `folder` and returns once it is on the disk and every byte was read back,
/// not from the system's copy in memory where it can be dropped (UntrustedFile::drop_cache). Throws
/// StorageError, CheckpointError.
ShardReport write_shard(FileSystem& files, const std::string& folder, const ShardLayout& layout,
                        std::string_view data);

/// Adds a shard's files and tensors to a manifest; then the tensors are to be sorted by name.
void add_shard(Manifest& manifest, const ShardLayout& layout, const ShardReport& report);

/// Makes `.tmp-step-XXXXXXXX-<attempt>` in `folder`, made too if it is missing, with the first
/// attempt that is free. Returns its path. Throws StorageError.
std::string make_save_folder(FileSystem& files, const std::string& folder, int64_t step);

/// Turns the save folder `temporary`, in which every shard is on the disk, into the checkpoint
/// `folder`/step-XXXXXXXX: writes the manifest and reads it back, checks that the shards, of their
/// sizes, and nothing else lie there, renames. A crash leaves the checkpoint whole or not there. An
/// older one of the same step becomes `.old-step-XXXXXXXX`. Returns the path.
/// Throws StorageError, CheckpointError.
std::string commit_checkpoint(FileSystem& files, const std::string& folder,
                              const std::string& temporary, const Manifest& manifest);

/// Gives the checkpoint of this step a score; all else of it stays. A crash leaves the checkpoint
/// with the score or without. Returns the path. Throws StorageError, CheckpointError.
std::string write_score(FileSystem& files, const std::string& folder, int64_t step, double score);

/// Writes the name of the newest checkpoint to LATEST beside `folder`: a hint for people, which no
/// reader trusts. Throws StorageError.
void write_latest(FileSystem& files, const std::string& folder, int64_t step);

}  // namespace shoal
