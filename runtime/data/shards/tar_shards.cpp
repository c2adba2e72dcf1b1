#include "runtime/data/shards/tar_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/images/image_file.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/data/split_files.h"
#include "runtime/files/sha256.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// A split's shards as they will be opened.
std::vector<std::string> shard_paths(const TarShardsSource::Options& options, Split split) {
  const auto paths = [&](const auto& chosen) {
    if (chosen.shards) return paths_in(options.path, *chosen.shards);
    return shards_in(paths_in(options.path, {chosen.kFolder}).front(),
                     "data.path must hold the folders train and val, or data.train.shards and "
                     "data.valid.shards name files in it");
  };
  return split == Split::kTrain ? paths(options.train) : paths(options.valid);
}

/// The shards with links resolved; none if their folder is missing.
std::vector<std::string> without_shard_links(const TarShardsSource::Options& options, Split split) {
  std::vector<std::string> paths;
  try {
    paths = shard_paths(options, split);
  } catch (const DataError&) {  // open() tells
  }
  for (std::string& path : paths) {
    std::error_code failed;
    const fs::path found = fs::weakly_canonical(path, failed);
    if (!failed) path = found.string();
  }
  return paths;
}

void require_labels_below(int64_t num_classes, const Shard& shard) {
  for (const ShardSample& sample : shard.samples()) {
    if (sample.label.value_or(0) < num_classes) continue;
    throw DataError(
        fmt::format("{} has the class {}, and data.classes is {}",
                    member_place(shard.path(), sample.name), *sample.label, num_classes),
        "set data.classes to the number of classes, counted from 0");
  }
}

std::vector<Shard> open_shards(const std::vector<std::string>& paths,
                               std::optional<int64_t> num_classes) {
  std::vector<Shard> shards;
  for (const std::string& path : paths) {
    shards.emplace_back(path, num_classes ? Labels::kRequired : Labels::kIgnored);
    if (num_classes) require_labels_below(*num_classes, shards.back());
  }
  return shards;
}

/// Shards one after the other.
class TarShardsSet final : public SampleSet {
 public:
  TarShardsSet(const std::vector<std::string>& paths, std::optional<int64_t> num_classes,
               const PhotographOptions& photographs)
      : shards_(open_shards(paths, num_classes)),
        end_of_shard_(ends_of(shards_)),
        has_classes_(num_classes.has_value()),
        decode_side_(photographs.decode_side),
        corrupt_(size(), photographs.on_corrupt) {}

  int64_t size() const override { return end_of_shard_.empty() ? 0 : end_of_shard_.back(); }
  std::vector<int64_t> substituted() const override { return corrupt_.met(); }
  std::vector<std::string> notes() const override { return corrupt_.lines(); }

  /// All names, sizes and labels, and the bytes of some images.
  std::string fingerprint() const override {
    constexpr int64_t kMostImagesRead = 16;
    std::string list;
    for (const Shard& shard : shards_) {
      list += fs::path(shard.path()).filename().string() + "\n";
      for (const ShardSample& sample : shard.samples()) {
        list += fmt::format("{} {} {}\n", sample.name, sample.size, label_of(sample));
      }
    }
    Sha256 images;
    const int64_t num_read = std::min(kMostImagesRead, size());
    for (int64_t i = 0; i < num_read; ++i) {
      const auto [shard, sample] = find(size() * i / num_read);
      const std::span<const std::byte> bytes = shard.image(sample);
      images.update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return fmt::format("{} images in {} shards {}, {} of them {}", size(), shards_.size(),
                       sha256_hex(list).substr(0, 16), num_read, images.hex().substr(0, 16));
  }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    return corrupt_.read(index, [this](int64_t image) { return decode(image); });
  }

 private:
  struct Place {
    const Shard& shard;
    const ShardSample& sample;
  };

  static std::vector<int64_t> ends_of(const std::vector<Shard>& shards) {
    std::vector<int64_t> ends;
    for (const Shard& shard : shards) {
      ends.push_back((ends.empty() ? 0 : ends.back()) + std::ssize(shard.samples()));
    }
    return ends;
  }

  Place find(int64_t index) const {
    const auto end = std::ranges::upper_bound(end_of_shard_, index);
    const auto shard = static_cast<size_t>(end - end_of_shard_.begin());
    const int64_t first = shard == 0 ? 0 : end_of_shard_[shard - 1];
    return {shards_[shard], shards_[shard].samples()[static_cast<size_t>(index - first)]};
  }

  int64_t label_of(const ShardSample& sample) const { return has_classes_ ? *sample.label : 0; }

  Sample decode(int64_t index) const {
    const auto [shard, sample] = find(index);
    DecodedImage image =
        decode_image(shard.image(sample), member_place(shard.path(), sample.name), decode_side_);
    return {
        .shape = image.shape, .pixel_CHW = std::move(image.pixel_CHW), .label = label_of(sample)};
  }

  std::vector<Shard> shards_;
  std::vector<int64_t> end_of_shard_;  ///< samples up to and with each shard
  bool has_classes_;
  std::optional<int64_t> decode_side_;
  CorruptImages corrupt_;
};

const Registration<DataSource, TarShardsSource> registered_tar_shards_source{
    "tar_shards", "JPEG and PNG files in tar archives, as WebDataset has them"};

}  // namespace

void TarShardsSource::Options::validate(Problems& problems) const {
  const auto named = [this](const auto& split) {
    return paths_in(path, split.shards.value_or(std::vector<std::string>{}));
  };
  refuse_repeated(named(train), named(valid), problems, "shards");
}

DataShape TarShardsSource::shape() const {
  return {.source = "tar_shards",
          .image = options_.photographs.shape(),
          .has_unit_pixels = keeps_unit_pixels(options_.photographs.images),
          .classes = options_.classes.value_or(0)};
}

std::optional<ImageTransform> TarShardsSource::image_transform() const {
  return photograph_transform(options_.photographs, options_.train.crop, options_.valid.crop);
}

void TarShardsSource::check_training(Problems& problems) const {
  refuse_shared(without_shard_links(options_, Split::kTrain),
                without_shard_links(options_, Split::kValid), problems, "shards");
}

std::vector<std::string> TarShardsSource::files() const {
  const auto files = [this](const auto& split) {
    return paths_in(options_.path, split.shards.value_or(std::vector<std::string>{split.kFolder}));
  };
  return both(files(options_.train), files(options_.valid));
}

std::unique_ptr<SampleSet> TarShardsSource::open(Split split) const {
  return std::make_unique<TarShardsSet>(shard_paths(options_, split), options_.classes,
                                        options_.photographs);
}

}  // namespace shoal
