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
  /// `class_names`: by label, for the indices; may be empty.
  ShardWriter(FileSystem& files, std::string folder, int64_t shard_bytes,
              std::vector<std::string> class_names = {});
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Adds a sample: image file NNNNNNNNN.ENDING and, if labelled, the label as NNNNNNNNN.cls.
  /// `file`: the image's file name, for the index; may be empty.
  void add(std::span<const std::byte> image, std::string_view ending, std::optional<int64_t> label,
           const std::string& file = "");
  PackedShards finish();

 private:
  void append(const std::string& name, std::string_view bytes);
  void flush();
  void close_shard();
  std::string shard_path(int64_t shard) const;

  FileSystem& files_;
  std::string folder_;
  int64_t shard_bytes_;
  std::vector<std::string> class_names_;
  std::unique_ptr<OutputFile> file_;  ///< the shard being written; null between shards
  std::string buffer_;
  int64_t file_bytes_ = 0;                 ///< size of that shard so far
  std::vector<std::string> packed_files_;  ///< in that shard
  PackedShards packed_;
};

/// Options of pack_images, which packs the images of `folder`, in the order of images_of_folder and
/// without decoding them, into shards in `out`, an empty folder. With `has_classes` each subfolder
/// is a class, numbered in order of name or, with `classes_of`, a folder of shards, as there.
/// Throws: DataError as images_of_folder, if there is no class, or for a file name with control
/// characters; StorageError.
struct PackPlan {
  std::string folder;
  std::string out;
  bool has_classes = false;
  std::string classes_of = {};  ///< a folder of shards with class names; "": none
  int64_t shard_bytes = 256'000'000;
};
PackedShards pack_images(const PackPlan& plan, FileSystem& files);

}  // namespace shoal
