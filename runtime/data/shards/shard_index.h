#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/data_file.h"

/// Shards: tar archives of images in the layout of WebDataset. A sample is the members whose names
/// are equal up to the first point of the file's name: an image (jpg, jpeg or png) and, if
/// labelled, its class as an integer (cls). Other members of a sample, and files whose names begin
/// with a point, are ignored. An index, a file beside the shard, lists its samples, so that opening
/// a shard need not read all headers. Free of torch.
namespace shoal {

inline constexpr std::string_view kShardEnding = ".tar";

/// An image in a shard.
struct ShardSample {
  std::string name;              ///< name of the image's member
  int64_t offset = 0, size = 0;  ///< place of its bytes in the archive
  std::optional<int64_t> label = {};
  std::string file = {};  ///< name of the file that was packed, in its folder; "": not known
  bool operator==(const ShardSample&) const = default;
};

/// The contents of a shard's index.
struct ShardList {
  std::vector<ShardSample> samples;
  std::vector<std::string> class_names = {};  ///< by label; empty: not known
};

/// Handling of the classes of samples.
enum class Labels {
  kIgnored,   ///< cls members are ignored
  kOptional,  ///< a sample may have a cls member
  kRequired,  ///< a sample without a cls member is an error
};

/// Returns the samples of an archive, in the order of their first members. `path`: for messages.
/// Throws: DataError as list_tar (a damaged or unsafe archive), if there are no samples, and for a
/// sample without an image, with two images or two classes, or with a class that is not an integer
/// >= 0 or that is missing although required.
std::vector<ShardSample> samples_of_tar(std::span<const std::byte> archive, const std::string& path,
                                        Labels labels);

/// Path of a shard's index: SHARD.tar.index.
std::string shard_index_path(const std::string& shard);
/// Returns the text of a shard's index: class names, samples, the size of the archive, and a hash.
/// The hash covers both lists and the tar headers of up to 64 images. Names with a control
/// character cannot be read back; `shoal data pack` makes none.
std::string emit_shard_index(const ShardList& list, std::span<const std::byte> archive);
/// Parses an index, also of version 1, without names of classes and files. `path`: the shard's.
/// Throws: DataError that names the index if it is damaged or belongs to another archive. Accepts
/// changes that keep the size and the hashed headers.
ShardList parse_shard_index(std::string_view text, std::span<const std::byte> archive,
                            const std::string& path);

/// Returns what a shard's index lists; nothing if it has none. Throws: as parse_shard_index.
std::optional<ShardList> indexed_samples(const MappedFile& shard);
/// The class names in the first of these shards' indices; empty without any. Throws DataError.
std::vector<std::string> class_names_of_shards(const std::vector<std::string>& shards);

/// The bytes of an image's file in its archive.
std::span<const std::byte> image_in(std::span<const std::byte> archive, const ShardSample& sample);
/// "SHARD: member 'NAME'", for messages.
std::string member_place(const std::string& path, const std::string& name);

/// A memory-mapped shard, from which images are read.
class Shard {
 public:
  /// Takes the samples from the index beside the shard or, without one, from the tar headers.
  /// Throws: DataError as samples_of_tar and parse_shard_index, and for a missing file.
  Shard(const std::string& path, Labels labels);

  const std::string& path() const { return file_.path(); }
  const std::vector<ShardSample>& samples() const { return list_.samples; }
  const std::vector<std::string>& class_names() const { return list_.class_names; }
  std::span<const std::byte> image(const ShardSample& sample) const {
    return image_in(file_.bytes(), sample);
  }

 private:
  MappedFile file_;
  ShardList list_;
};

/// Paths of a folder's shards, in order of name. Throws: DataError with `hint` if it has none or
/// cannot be listed.
std::vector<std::string> shards_in(const std::string& folder, const std::string& hint);

}  // namespace shoal
