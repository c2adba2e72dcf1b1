#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/data_file.h"

/// Shards: tar archives of images in the layout of WebDataset. A sample is the members that share a
/// name up to the first point of its last component: an image (jpg, jpeg or png) and, of labelled
/// samples, its class as an integer (cls). Other members of a sample, and names whose last
/// component begins with a point, are passed over. Free of torch.
namespace shoal {

inline constexpr std::string_view kShardEnding = ".tar";

/// An image in a shard.
struct ShardSample {
  std::string name;              ///< of the image's member
  int64_t offset = 0, size = 0;  ///< its bytes
  std::optional<int64_t> label = {};
  bool operator==(const ShardSample&) const = default;
};

enum class Labels {
  kIgnored,   ///< cls members are not looked at
  kOptional,  ///< a sample may have one
  kRequired,
};

/// The samples of an archive, in the order of their first members. Throws: DataError as list_tar,
/// for members without an image beside them, for a sample with two images or two classes, and for
/// a class that is missing or no integer of 0 or more.
std::vector<ShardSample> samples_of_tar(std::span<const std::byte> archive, const std::string& path,
                                        Labels labels);

/// Where the index of a shard lies: SHARD.tar.index.
std::string shard_index_path(const std::string& shard);
/// What the index of a shard holds: its samples, by which it is opened without reading every
/// header, and by what it is known again: its size and a hash of the samples and of the headers
/// of up to 64 of them. Names with a line end, which `shoal data pack` does not make, cannot be
/// read again.
std::string emit_shard_index(const std::vector<ShardSample>& samples,
                             std::span<const std::byte> archive);
/// The samples by an index. `path`: of the shard. Throws: DataError that names the index, if it is
/// damaged or of another archive; a change between the headers that were hashed is not seen.
std::vector<ShardSample> parse_shard_index(std::string_view text,
                                           std::span<const std::byte> archive,
                                           const std::string& path);

/// The samples of a shard by the index that lies beside it; nothing without one. Throws: as
/// parse_shard_index.
std::optional<std::vector<ShardSample>> indexed_samples(const MappedFile& shard);

/// The image's file in its archive.
std::span<const std::byte> image_in(std::span<const std::byte> archive, const ShardSample& sample);
/// "SHARD: member 'NAME'", for messages.
std::string member_place(const std::string& path, const std::string& name);

/// A shard, mapped for reading.
class Shard {
 public:
  /// Takes the samples from its index, if one lies beside it, or from its headers. Throws:
  /// DataError as samples_of_tar and parse_shard_index, and for a file that is missing.
  Shard(const std::string& path, Labels labels);

  const std::string& path() const { return file_.path(); }
  const std::vector<ShardSample>& samples() const { return samples_; }
  std::span<const std::byte> image(const ShardSample& sample) const {
    return image_in(file_.bytes(), sample);
  }

 private:
  MappedFile file_;
  std::vector<ShardSample> samples_;
};

/// The paths of a folder's shards, in order of name. Throws: DataError with `hint` where it has
/// none or cannot be listed.
std::vector<std::string> shards_in(const std::string& folder, const std::string& hint);

}  // namespace shoal
