#include "runtime/data/shards/verify_shards.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/data/images/image_file.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/files/data_file.h"

namespace shoal {
namespace {

/// Verifies several shards; continues after each problem.
class ShardVerifier {
 public:
  explicit ShardVerifier(bool decodes) : decodes_(decodes) {}

  void verify(const std::string& path) {
    if (is_full()) return;
    ++verified.num_shards;
    note_error([&] {
      const MappedFile shard(path, "name shards, or a folder of them");
      verified.bytes += std::ssize(shard.bytes());
      const std::vector<ShardSample> samples =
          samples_of_tar(shard.bytes(), path, Labels::kOptional);
      verified.num_samples += std::ssize(samples);
      note_error([&] { require_labels_of_all(samples, path); });
      note_error([&] { compare_index(samples, shard); });
      if (decodes_) decode(samples, shard);
    });
  }

  VerifiedShards verified;

 private:
  bool is_full() const { return std::ssize(verified.findings) >= kMostFindings; }

  void note_error(const std::function<void()>& work) {
    if (is_full()) return;
    try {
      work();
    } catch (const DataError& error) {
      verified.findings.emplace_back(error.what());
    }
  }

  static void require_labels_of_all(const std::vector<ShardSample>& samples,
                                    const std::string& path) {
    const auto has_label = [](const ShardSample& sample) { return sample.label.has_value(); };
    const auto without = std::ranges::find_if_not(samples, has_label);
    if (without == samples.end() || std::ranges::none_of(samples, has_label)) return;
    throw DataError(member_place(path, without->name) +
                    " has no class beside it, and other samples have one");
  }

  void compare_index(const std::vector<ShardSample>& samples, const MappedFile& shard) {
    std::optional<ShardList> indexed = indexed_samples(shard);
    if (!indexed) return;
    for (ShardSample& sample : indexed->samples) sample.file.clear();  // not in the shard itself
    const std::string path = shard_index_path(shard.path());
    if (indexed->samples != samples)
      throw DataError(path + ": lists other samples than the shard has");
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    const auto& names = class_names_.try_emplace(folder, indexed->class_names).first->second;
    if (indexed->class_names != names)
      throw DataError(path + ": has other class names than indices before it in the folder");
  }

  void decode(const std::vector<ShardSample>& samples, const MappedFile& shard) {
    for (const ShardSample& sample : samples) {
      note_error([&] {
        decode_image(image_in(shard.bytes(), sample), member_place(shard.path(), sample.name));
      });
    }
  }

  bool decodes_;
  std::map<std::string, std::vector<std::string>> class_names_;  ///< by folder, of its first index
};

}  // namespace

VerifiedShards verify_shards(const std::vector<std::string>& paths, bool decodes) {
  ShardVerifier verifier(decodes);
  for (const std::string& path : paths) verifier.verify(path);
  return std::move(verifier.verified);
}

}  // namespace shoal
