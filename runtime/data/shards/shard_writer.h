#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/file_system.h"

namespace shoal {

/// What became of images.
struct PackedShards {
  int64_t num_shards = 0;
  int64_t num_samples = 0;
  int64_t bytes = 0;  ///< of the shards
  bool operator==(const PackedShards&) const = default;
};

/// Writes FOLDER/shard-000000.tar and so on, each with its index; their bytes are a function of the
/// samples alone. All are complete and on the disk, under names with .tmp behind, before finish()
/// gives them their own: a folder of shards holds all of them, whenever the program is killed but
/// during these renames. After an error the folder is the caller's to clear. Throws: StorageError.
class ShardWriter {
 public:
  /// A shard has at most `shard_bytes`, unless its only sample has more.
  ShardWriter(FileSystem& files, std::string folder, int64_t shard_bytes);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// The next sample: the members NNNNNNNNN.ENDING and, of a labelled one, NNNNNNNNN.cls.
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
  std::unique_ptr<OutputFile> file_;  ///< the shard being written; null between two
  std::string buffer_;
  int64_t file_bytes_ = 0;  ///< of it so far
  PackedShards packed_;
};

/// Packs the images of a folder into shards in `out`, an empty folder, in the order of
/// images_of_folder; with `has_classes` each with its class, a folder of its own. Images are not
/// decoded. Throws: DataError as images_of_folder, and without class folders; StorageError.
struct PackPlan {
  std::string folder;
  std::string out;
  bool has_classes = false;
  int64_t shard_bytes = 256'000'000;
};
PackedShards pack_images(const PackPlan& plan, FileSystem& files);

}  // namespace shoal
