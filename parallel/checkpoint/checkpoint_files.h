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

/// The entry of a written shard in the manifest, and its tensors' checksums.
struct ShardReport {
  ManifestFile file;
  std::vector<uint32_t> tensor_crcs;  ///< in the order of the layout's entries
};

/// Writes a shard into `folder`. Returns once it is on the disk and every byte was read back and
/// checked, bypassing the page cache where possible (UntrustedFile::drop_cache). Throws
/// StorageError, CheckpointError.
ShardReport write_shard(FileSystem& files, const std::string& folder, const ShardLayout& layout,
                        std::string_view data);

/// Adds a shard's file and tensors to a manifest; sort the manifest's tensors by name afterwards.
void add_shard(Manifest& manifest, const ShardLayout& layout, const ShardReport& report);

/// Creates `.tmp-step-XXXXXXXX-<attempt>` in `folder` with the first free attempt number, and
/// `folder` itself if it is missing. Returns its path. Throws StorageError.
std::string make_save_folder(FileSystem& files, const std::string& folder, int64_t step);

/// Turns the save folder `temporary`, in which every shard is on the disk, into the checkpoint
/// `folder`/step-XXXXXXXX: writes the manifest and reads it back, checks that only the shards lie
/// there and have their sizes, renames. After a crash the checkpoint is whole or absent. An older
/// one of the same step becomes `.old-step-XXXXXXXX`. Returns the path. Throws StorageError,
/// CheckpointError.
std::string commit_checkpoint(FileSystem& files, const std::string& folder,
                              const std::string& temporary, const Manifest& manifest);

/// Writes a score into the checkpoint of this step and changes nothing else. A crash leaves the old
/// manifest or the new one. Returns the path. Throws StorageError, CheckpointError.
std::string write_score(FileSystem& files, const std::string& folder, int64_t step, double score);

/// Writes the name of the newest checkpoint to LATEST beside `folder`: a hint for people that no
/// code reads. Throws StorageError.
void write_latest(FileSystem& files, const std::string& folder, int64_t step);

}  // namespace shoal
