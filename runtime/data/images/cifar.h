#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/data/crop.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// Data source `cifar`: CIFAR-10 or CIFAR-100 in the official binary layout. Rules of keys: in a
/// list, not_empty() refuses an empty text and at_least_one() an empty list; changes_scores() makes
/// a resume with another value warn that scores are not comparable.
class CifarSource : public DataSource {
 public:
  static constexpr int64_t kSide = 32;  ///< side of the files' images, pixels
  struct SplitOptions {
    std::optional<std::vector<std::string>> files;
    std::optional<int64_t> samples;
    Choice<Crop> crop{"center"};

    static constexpr auto fields() {
      return std::tuple{field("files", &SplitOptions::files,
                              "files in data.path; auto = those of the official split",
                              unset_word("auto"), not_empty(), at_least_one(), file_path()),
                        field("samples", &SplitOptions::samples,
                              "the first so many of the files' records; auto = all",
                              unset_word("auto"), at_least(1)),
                        field("crop", &SplitOptions::crop,
                              "what of an image is taken and resized to data.image_size")};
    }
  };
  struct Options {
    std::optional<std::string> path;
    int64_t classes = 10;
    int64_t image_size = kSide;
    OnCorrupt on_corrupt = OnCorrupt::kFail;
    SplitOptions train;
    SplitOptions valid;
    ImageOptions images;

    static constexpr auto fields() {
      return std::tuple{
          field("path", &Options::path,
                "folder of the files, relative to the working directory; auto = the archive's own "
                "name, cifar-10-batches-bin or cifar-100-binary",
                unset_word("auto"), not_empty(), file_path(), on_resume(OnResume::kFree)),
          field("classes", &Options::classes, "10 = CIFAR-10, 100 = CIFAR-100 by fine labels"),
          field("image_size", &Options::image_size, "height and width after the crop",
                unit("pixels"), in_range(1, 4096)),
          field("on_corrupt", &Options::on_corrupt,
                "a record with a wrong label: fail, or skip = take the next good one, for at most "
                "1e-4 of the records"),
          field("train", &Options::train, "what is trained on"),
          field("valid", &Options::valid, "what is evaluated on", changes_scores()),
          inlined(&Options::images)};
    }
    /// Refuses class counts other than 10 and 100, and a file named twice.
    void validate(Problems& problems) const;

    /// Folder of the files.
    std::string folder() const;
    /// Paths of a split's files.
    std::vector<std::string> paths(Split split) const;
  };

  static constexpr Sketch kSketch{
      .image = ImageShape{3, 32, 32},
      .path = "${env:CIFAR10}",
      .files = "data_batch_1.bin, ...",
      .lines =
          "  train: {files: [data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, "
          "data_batch_4.bin]}\n"
          "  valid: {files: [data_batch_5.bin]}   # held out of the training files\n",
      .change = "  augment: {crop_padding: 4, flip: true}\n"};  ///< starter recipe of `shoal new`

  explicit CifarSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  /// Names from batches.meta.txt, or fine_label_names.txt for 100 classes, beside the files.
  std::vector<std::string> class_names() const override;
  std::optional<ImageTransform> image_transform() const override;
  /// Reports a file that is in both splits.
  void check_training(Problems& problems) const override;
  std::vector<std::string> files() const override;
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  ImageShape image() const { return {3, options_.image_size, options_.image_size}; }
  /// The crop of a split; null if images are used as they are.
  std::shared_ptr<const Crop> crop_of(const SplitOptions& split, const std::string& key) const;

  Options options_;
};

}  // namespace shoal
