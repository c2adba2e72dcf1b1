#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/class_options.h"
#include "runtime/data/crop.h"
#include "runtime/data/data_source.h"
#include "runtime/data/images/image_file.h"
#include "runtime/data/images/photographs.h"
#include "runtime/data/shards/shard_index.h"
#include "runtime/data/split_files.h"
#include "runtime/files/sha256.h"

namespace shoal {

template <Split kSplit>
struct ShardsSplit {
  static constexpr bool kTrains = kSplit == Split::kTrain;
  static constexpr const char* kPath = "folder of the shards, relative to the working directory";
  static constexpr const char* kFolder = kTrains ? "train" : "val";
  std::optional<std::vector<std::string>> shards;
  Choice<Crop> crop{kTrains ? "random_resized" : "center"};

  static constexpr auto fields() {
    return std::tuple{
        field("shards", &ShardsSplit::shards,
              kTrains ? "files in data.path; auto = all *.tar in its folder train, in order of "
                        "name"
                      : "files in data.path; auto = all *.tar in its folder val, in order of name",
              unset_word("auto"), not_empty(), at_least_one(), file_path()),
        field("crop", &ShardsSplit::crop, "how images are cropped to squares of data.image_size")};
  }
};

namespace {

namespace fs = std::filesystem;

struct TarShardsOptions : PhotographSourceOptions<ShardsSplit> {
  /// Refuses a shard named twice.
  void validate(Problems& problems) const {
    const auto named = [this](const auto& split) {
      return paths_in(path, split.shards.value_or(std::vector<std::string>{}));
    };
    refuse_repeated(named(train), named(valid), problems, "shards");
  }
};

/// A split's shards as they will be opened.
std::vector<std::string> shard_paths(const TarShardsOptions& options, Split split) {
  const auto paths = [&](const auto& chosen) {
    if (chosen.shards) return paths_in(options.path, *chosen.shards);
    return shards_in(paths_in(options.path, {chosen.kFolder}).front(),
                     "data.path must hold the folders train and val, or data.train.shards and "
                     "data.valid.shards name files in it");
  };
  return split == Split::kTrain ? paths(options.train) : paths(options.valid);
}

/// True for a folder without a .tar file.
bool holds_no_shard(const std::string& folder) {
  std::error_code failed;
  const fs::directory_iterator entries(folder, failed);
  return !failed && std::ranges::none_of(entries, [](const fs::directory_entry& entry) {
    return entry.path().extension() == ".tar";
  });
}

/// The shards with links resolved; none if their folder is missing.
std::vector<std::string> without_shard_links(const TarShardsOptions& options, Split split) {
  std::vector<std::string> paths;
  try {
    paths = shard_paths(options, split);
  } catch (const DataError&) {  // open() tells
  }
  for (std::string& path : paths) path = without_links(path);
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

/// `num_classes`: 0 without labels. `names`: of the classes, in all indices that name some.
std::vector<Shard> open_shards(const std::vector<std::string>& paths, int64_t num_classes,
                               const std::vector<std::string>& names) {
  std::vector<Shard> shards;
  for (const std::string& path : paths) {
    shards.emplace_back(path, num_classes > 0 ? Labels::kRequired : Labels::kIgnored);
    if (num_classes > 0) require_labels_below(num_classes, shards.back());
    const std::vector<std::string>& own = shards.back().class_names();
    if (own.empty() || own == names) continue;
    throw DataError(shard_index_path(path) + ": has other class names than " + paths.front(),
                    "pack the shards of a split together");
  }
  return shards;
}

/// Shards one after the other.
class TarShardsSet final : public SampleSet {
 public:
  TarShardsSet(std::vector<Shard> shards, bool has_classes, ClassLabels labels,
               const PhotographOptions& photographs)
      : shards_(std::move(shards)),
        end_of_shard_(ends_of(shards_)),
        has_classes_(has_classes),
        labels_(std::move(labels)),
        decode_side_(photographs.decode_side),
        corrupt_(size(), photographs.on_corrupt) {}

  int64_t size() const override { return end_of_shard_.empty() ? 0 : end_of_shard_.back(); }
  std::vector<int64_t> substituted() const override { return corrupt_.met(); }
  std::vector<std::string> notes() const override { return both(labels_.notes, corrupt_.lines()); }
  std::vector<std::string> warnings() const override { return labels_.warnings; }

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
  /// The file that was packed; "SHARD/MEMBER" if the shard has no index that names it.
  std::string name(int64_t index) const override {
    const auto [shard, sample] = find(index);
    return sample.file.empty() ? shard.path() + "/" + sample.name : sample.file;
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

  int64_t label_of(const ShardSample& sample) const {
    return has_classes_ ? labels_.of(*sample.label) : 0;
  }

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
  ClassLabels labels_;
  std::optional<int64_t> decode_side_;
  CorruptImages corrupt_;
};

/// Data source `tar_shards`: JPEG and PNG files in tar archives, as WebDataset and `shoal data
/// pack` write them. For data sets like image_folder's, in a few large files instead of many small
/// ones. Samples are in the order of the shards and, within a shard, of its members.
class TarShardsSource : public DataSource {
 public:
  using Options = TarShardsOptions;

  static constexpr Sketch kSketch = photograph_sketch(
      "shards", "train/*.tar and val/*.tar, as `shoal data pack --classes` makes them");

  /// Looks for class names in the shards' indices.
  explicit TarShardsSource(const Options& options) : options_(options) {
    options_.classes.find([this](Split split) { return find_classes(split); });
  }

  DataShape shape() const override { return options_.shape("tar_shards"); }
  std::vector<std::string> class_names() const override { return options_.classes.class_names; }
  std::optional<ImageTransform> image_transform() const override {
    return photograph_transform(options_.photographs, options_.train.crop, options_.valid.crop);
  }
  /// Reports a shard that is in both splits, and as ClassOptions::check.
  void check_training(Problems& problems) const override {
    options_.classes.check([this](Split split) { return find_classes(split); }, problems);
    refuse_shared(without_shard_links(options_, Split::kTrain),
                  without_shard_links(options_, Split::kValid), problems, "shards");
  }
  std::vector<std::string> files(Split split) const override {
    const auto files = [this](const auto& chosen) {
      if (chosen.shards) return paths_in(options_.path, *chosen.shards);
      const std::string folder = paths_in(options_.path, {chosen.kFolder}).front();
      return std::vector{holds_no_shard(folder) ? folder + "/*.tar" : folder};
    };
    return split == Split::kTrain ? files(options_.train) : files(options_.valid);
  }
  /// Reads the shards' indices or, where one is missing, all headers; decodes no image.
  std::unique_ptr<SampleSet> open(Split split) const override {
    const std::vector<std::string> paths = shard_paths(options_, split);
    const auto [place, names] = find_classes(split);
    ClassLabels labels = label_classes(names, options_.classes, place, split);
    const int64_t num_classes =
        labels.label_of.empty() ? *options_.classes.classes : std::ssize(labels.label_of);
    return std::make_unique<TarShardsSet>(open_shards(paths, num_classes, names), num_classes > 0,
                                          std::move(labels), options_.photographs);
  }

 private:
  FoundClasses find_classes(Split split) const {
    const std::vector<std::string> paths = shard_paths(options_, split);
    return {paths.front(), class_names_of_shards(paths)};
  }

  Options options_;
};

const Registration<DataSource, TarShardsSource> registered_tar_shards_source{
    "tar_shards", "JPEG and PNG files in tar archives, in WebDataset format"};

}  // namespace
}  // namespace shoal
