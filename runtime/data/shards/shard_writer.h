#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/files/file_system.h"

namespace shoal {

/// Totals of the written shards.
struct PackedShards {
  int64_t num_shards = 0;
  int64_t num_samples = 0;
  int64_t bytes = 0;  ///< of the shards
  bool operator==(const PackedShards&) const = default;
};

/// Writes tar archives FOLDER/shard-000000.tar and so on, each with an index that lists its
/// samples. All bytes are a function of the samples alone. Shards are written completely, under
/// names in .tmp, before finish() renames them, so a program that is killed leaves all or none,
/// except during these renames. After an error (StorageError) the caller has to clear the folder.
class ShardWriter {
 public:
  /// A shard has at most `shard_bytes`, unless it holds one larger sample. `folder` must exist.
  ShardWriter(FileSystem& files, std::string folder, int64_t shard_bytes);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Adds a sample: image file NNNNNNNNN.ENDING and, if labelled, the label as NNNNNNNNN.cls.
  void add(std::span<const std::byte> image, std::string_view ending, std::optional<int64_t> label);
  PackedShards finish();

 private:
  void append(const std::string& name, std::string_view bytes);
  void flush();
  void close_shard();
  std::string shard_path(int64_t shard) const;

  FileSystem& files_;
  std::string folder_;
  int64_t shard_bytes_;
  std::unique_ptr<OutputFile> file_;  ///< the shard being written; null between shards
  std::string buffer_;
  int64_t file_bytes_ = 0;  ///< size of that shard so far
  PackedShards packed_;
};

/// Options of pack_images, which packs the images of `folder`, in the order of images_of_folder and
/// without decoding them, into shards in `out`, an empty folder. With `has_classes` each subfolder
/// is a class. Throws: DataError as images_of_folder, or if there is no class; StorageError.
struct PackPlan {
  std::string folder;
  std::string out;
  bool has_classes = false;
  int64_t shard_bytes = 256'000'000;
};
PackedShards pack_images(const PackPlan& plan, FileSystem& files);

}  // namespace shoal
