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

/// Data source `image_folder`: JPEG and PNG files in class folders, as ImageNet is usually stored,
/// data.path/train/CLASS/NAME.JPEG. The loader crops images to squares: training draws a new crop
/// for each view (augmented copy). changes_scores() makes a resume with another value warn.
class ImageFolderSource : public DataSource {
 public:
  template <Split kSplit>
  struct SplitOptions {
    static constexpr bool kTrains = kSplit == Split::kTrain;
    std::string folder = kTrains ? "train" : "val";
    std::optional<std::string> list;
    Choice<Crop> crop{kTrains ? "random_resized" : "center"};

    static constexpr auto fields() {
      return std::tuple{
          field("folder", &SplitOptions::folder, "folder of the images, in data.path", not_empty(),
                file_path()),
          field("list", &SplitOptions::list,
                "text file in data.path, a line an image: its path in the folder and, unless "
                "data.classes is none, a space and its label; none = all images of the folder",
                unset_word("none"), not_empty(), file_path()),
          field("crop", &SplitOptions::crop, "what becomes of images of any size")};
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
          field("path", &Options::path, "folder of the data set, relative to the working directory",
                not_empty(), file_path(), on_resume(OnResume::kFree)),
          field("classes", &Options::classes,
                "number of class folders, labelled in order of name; none = images without labels",
                unset_word("none"), in_range(2, 1e6)),
          field("train", &Options::train, "what is trained on"),
          field("valid", &Options::valid, "what is evaluated on", changes_scores()),
          inlined(&Options::photographs)};
    }
  };

  static constexpr Sketch kSketch{.image = ImageShape{3, 224, 224},
                                  .path = "images",
                                  .files = "train/CLASS/NAME.jpg and val/CLASS/NAME.jpg",
                                  .lines =
                                      "  classes: 1000                  # folders of each split\n"
                                      "  image_size: 224\n"
                                      "  train: {crop: {name: random_resized, scale: [0.08, 1]}}\n"
                                      "  valid: {crop: {name: center, resize: 256}}\n",
                                  .change = "  augment: {flip: true}\n"};  ///< for `shoal new`

  explicit ImageFolderSource(const Options& options) : options_(options) {}

  DataShape shape() const override;
  /// Names of the validation split's class folders.
  std::vector<std::string> class_names() const override;
  std::optional<ImageTransform> image_transform() const override;
  /// Reports overlap: equal folder and list, or one split's folder (no list) contains the other's.
  void check_training(Problems& problems) const override;
  std::vector<std::string> files() const override;
  /// Lists the images without opening them.
  std::unique_ptr<SampleSet> open(Split split) const override;

 private:
  Options options_;
};

}  // namespace shoal
