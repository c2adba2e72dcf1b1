#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/manifest.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// The layout of a shard, one safetensors file of a checkpoint, before it is written.
struct ShardLayout {
  std::string name;                       ///< file name
  std::string header;                     ///< the bytes before the data
  std::vector<SafetensorsEntry> entries;  ///< the tensors and where each lies in the data
  uint64_t data_bytes() const { return entries.empty() ? 0 : entries.back().end; }
  uint64_t file_bytes() const { return header.size() + data_bytes(); }
};

/// Lays out tensors as shard `index` (from 0) of `count`. Sorts the entries by dtype, wide ones
/// first, so that every tensor is aligned, then by name. The header records `run_id` and `step`.
ShardLayout lay_out_shard(std::vector<SafetensorsEntry> entries, const std::string& run_id,
                          int64_t step, int64_t index, int64_t count);

/// The manifest's entry of a written shard, and the checksums of its tensors.
struct ShardReport {
  ManifestFile file;
  std::vector<uint32_t> tensor_crcs;  ///< in the order of the layout's entries
};

/// Writes a shard into `folder`. `data`: the bytes behind the header. Returns once the shard is on
/// the disk (fsync) and every byte was read back and checked, if possible from the disk, not from
/// the page cache. Throws StorageError, CheckpointError.
ShardReport write_shard(FileSystem& files, const std::string& folder, const ShardLayout& layout,
                        std::string_view data);

/// Appends a shard and its tensors to a manifest. After the last shard, sort the tensors by name.
void add_shard(Manifest& manifest, const ShardLayout& layout, const ShardReport& report);

/// Creates `folder`, if missing, and in it a save's temporary folder `.tmp-step-XXXXXXXX-<attempt>`
/// with the first free number. Returns its path. Throws StorageError.
std::string make_save_folder(FileSystem& files, const std::string& folder, int64_t step);

/// Turns the temporary folder of a save, which holds every shard, into the checkpoint
/// `folder`/step-XXXXXXXX: writes the manifest, reads it back, checks that the shards have their
/// sizes and that no other files lie there, and renames the folder. After a crash the checkpoint is
/// complete or absent. If a checkpoint of this step exists, such as a damaged one, it is renamed to
/// `.old-step-XXXXXXXX` for removal. Returns the path. Throws StorageError, CheckpointError.
std::string commit_checkpoint(FileSystem& files, const std::string& folder,
                              const std::string& temporary, const Manifest& manifest);

/// Records a score in the manifest of the checkpoint of `step`. After a crash the old or the new
/// manifest is there. Returns the path. Throws StorageError, CheckpointError.
std::string write_score(FileSystem& files, const std::string& folder, int64_t step, double score);

/// Writes the name of the newest checkpoint, that of `step`, to the file LATEST beside `folder`.
/// LATEST is for users; no code reads it. Throws StorageError.
void write_latest(FileSystem& files, const std::string& folder, int64_t step);

}  // namespace shoal
