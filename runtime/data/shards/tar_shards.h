#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/data/crop.h"
#include "runtime/data/data_source.h"
#include "runtime/data/images/photographs.h"

namespace shoal {

/// Data source `tar_shards`: JPEG and PNG files in tar archives, as WebDataset and `shoal data
/// pack` write them. For data sets like image_folder's, in a few large files instead of many small
/// ones. Samples are in the order of the shards and, within a shard, of its members.
class TarShardsSource : public DataSource {
 public:
  template <Split kSplit>
  struct SplitOptions {
    static constexpr bool kTrains = kSplit == Split::kTrain;
    static constexpr const char* kFolder = kTrains ? "train" : "val";
    std::optional<std::vector<std::string>> shards;
    Choice<Crop> crop{kTrains ? "random_resized" : "center"};

    static constexpr auto fields() {
      return std::tuple{
          field("shards", &SplitOptions::shards,
                kTrains
                    ? "files in data.path; auto = all *.tar in its folder train, in order of "
                      "name"
                    : "files in data.path; auto = all *.tar in its folder val, in order of name",
                unset_word("auto"), not_empty(), at_least_one(), file_path()),
          field("crop", &SplitOptions::crop, "how images become squares of data.image_size")};
    }
  };
  struct Options {
    std::string path = ".";
    std::optional<int64_t> classes;
    SplitOptions<Split::kTrain> train;
    SplitOptions<Split::kValid> valid;
    PhotographOptions photographs;

    static constexpr auto fields() {
      return std::tuple{
          field("path", &Options::path, "folder of the shards, relative to the working directory",
                not_empty(), file_path(), on_resume(OnResume::kFree)),
          field("classes", &Options::classes,
                "number of classes, which cls members name from 0 on; none = images without labels",
                unset_word("none"), in_range(2, 1e6)),
          field("train", &Options::train, "what is trained on"),
          field("valid", &Options::valid, "what is evaluated on", changes_scores()),
          inlined(&Options::photographs)};
    }
    /// Refuses a shard named twice.
    void validate(Problems& problems) const;
  };

  static constexpr Sketch kSketch{
      .image = ImageShape{3, 224, 224},
      .path = "shards",
      .files = "train/*.tar and val/*.tar, as `shoal data pack --classes` makes them",
      .lines =
          "  classes: 1000\n"
          "  image_size: 224\n"
          "  train: {crop: {name: random_resized, scale: [0.08, 1]}}\n"
          "  valid: {crop: {name: center, resize: 256}}\n",
      .change = "  augment: {flip: true}\n"};  ///< starter recipe of `shoal new`

  explicit TarShardsSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  std::optional<ImageTransform> image_transform() const override;
  /// Reports a shard that is in both splits.
  void check_training(Problems& problems) const override;
  std::vector<std::string> files() const override;
  /// Reads the shards' indices or, where one is missing, all headers; decodes no image.
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

}  // namespace shoal
