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
#include "runtime/data/images/image_list.h"
#include "runtime/data/images/photographs.h"
#include "runtime/data/split_files.h"
#include "runtime/files/data_file.h"
#include "runtime/files/sha256.h"

namespace shoal {

template <Split kSplit>
struct ImageFolderSplit {
  static constexpr bool kTrains = kSplit == Split::kTrain;
  static constexpr const char* kPath = "folder of the data set, relative to the working directory";
  std::string folder = kTrains ? "train" : "val";
  std::optional<std::string> list;
  Choice<Crop> crop{kTrains ? "random_resized" : "center"};

  static constexpr auto fields() {
    return std::tuple{
        field("folder", &ImageFolderSplit::folder, "folder of the images, in data.path",
              not_empty(), file_path()),
        field("list", &ImageFolderSplit::list,
              "text file in data.path, one image per line: its path in the folder and, unless "
              "data.classes is none, a space and its label; none = all images of the folder",
              unset_word("none"), not_empty(), file_path()),
        field("crop", &ImageFolderSplit::crop, "how images of any size are cropped")};
  }
};

namespace {

namespace fs = std::filesystem;

using ImageFolderOptions = PhotographSourceOptions<ImageFolderSplit>;

/// Where a split's images are, whichever split it is.
struct SplitPlace {
  std::string folder;
  std::optional<std::string> list;

  bool operator==(const SplitPlace&) const = default;
};

SplitPlace place_of(const ImageFolderOptions& options, Split split) {
  const auto place = [&](const auto& chosen) {
    const fs::path folder = paths_in(options.path, {chosen.folder}).front();
    SplitPlace found{(folder.has_filename() ? folder : folder.parent_path()).string(), {}};
    if (chosen.list) found.list = paths_in(options.path, {*chosen.list}).front();
    return found;
  };
  return split == Split::kTrain ? place(options.train) : place(options.valid);
}

/// Whether all images of a folder are a split, and the other split's folder is it or inside it.
bool holds(const SplitPlace& all, const SplitPlace& other) {
  return !all.list &&
         (fs::path(other.folder) / "").string().starts_with((fs::path(all.folder) / "").string());
}

class ImageFolderSet final : public SampleSet {
 public:
  /// `labels`: of the class folders, whose lines are handed on.
  ImageFolderSet(SplitPlace place, const ClassOptions& classes, ClassLabels labels,
                 const PhotographOptions& photographs)
      : hint_(place.list ? "the list " + *place.list + " names it; correct the list"
                         : "was it removed after the run began?"),
        folder_(std::move(place.folder)),
        images_(place.list ? images_of_list(*place.list, classes.classes.value_or(0))
                           : images_of_folder(folder_, classes)),
        labels_(std::move(labels)),
        decode_side_(photographs.decode_side),
        corrupt_(std::ssize(images_), photographs.on_corrupt) {}

  int64_t size() const override { return std::ssize(images_); }
  std::vector<int64_t> substituted() const override { return corrupt_.met(); }
  std::vector<std::string> notes() const override { return both(labels_.notes, corrupt_.lines()); }
  std::vector<std::string> warnings() const override { return labels_.warnings; }

  /// All names and labels, but the bytes of some files only: a million images take a moment.
  std::string fingerprint() const override {
    constexpr int64_t kMostFilesRead = 16;
    std::string names;
    for (const ImageEntry& image : images_) {
      names += fmt::format("{} {}\n", image.path, image.label);
    }
    const int64_t num_read = std::min(kMostFilesRead, size());
    std::string text = fmt::format("{} images {}", size(), sha256_hex(names).substr(0, 16));
    for (int64_t i = 0; i < num_read; ++i) {
      const std::string path = path_of(size() * i / num_read);
      MappedFile(path, hint_);  // its error names the missing part of the path
      text += ", " + file_fingerprint(path);
    }
    return text;
  }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    return corrupt_.read(index, [this](int64_t image) { return decode(image); });
  }
  std::string name(int64_t index) const override { return path_of(index); }

 private:
  Sample decode(int64_t index) const {
    const std::string path = path_of(index);
    const MappedFile file(path, hint_);
    DecodedImage image = decode_image(file.bytes(), path, decode_side_);
    return {.shape = image.shape,
            .pixel_CHW = std::move(image.pixel_CHW),
            .label = images_[static_cast<size_t>(index)].label};
  }

  std::string path_of(int64_t index) const {
    return (fs::path(folder_) / images_[static_cast<size_t>(index)].path).string();
  }

  std::string hint_;  ///< the next step where a file is missing
  std::string folder_;
  std::vector<ImageEntry> images_;
  ClassLabels labels_;
  std::optional<int64_t> decode_side_;
  CorruptImages corrupt_;
};

/// Data source `image_folder`: JPEG and PNG files in class folders, as ImageNet is usually stored,
/// data.path/train/CLASS/NAME.JPEG. The loader crops images to squares: training draws a new crop
/// for each view (augmented copy). changes_scores() makes a resume with another value warn.
class ImageFolderSource : public DataSource {
 public:
  using Options = ImageFolderOptions;

  static constexpr Sketch kSketch =
      photograph_sketch("images", "train/CLASS/NAME.jpg and val/CLASS/NAME.jpg");

  /// Looks for class folders; the labels of lists are numbers, which have no names.
  explicit ImageFolderSource(const Options& options) : options_(options) {
    options_.classes.find([this](Split split) { return find_classes(split); });
  }

  DataShape shape() const override { return options_.shape("image_folder"); }
  std::vector<std::string> class_names() const override { return options_.classes.class_names; }
  std::optional<ImageTransform> image_transform() const override {
    return photograph_transform(options_.photographs, options_.train.crop, options_.valid.crop);
  }
  /// Reports overlap: equal folder and list, or one split's folder (no list) contains the other's.
  /// Also reports as ClassOptions::check.
  void check_training(Problems& problems) const override {
    options_.classes.check([this](Split split) { return find_classes(split); }, problems);
    SplitPlace train = place_of(options_, Split::kTrain), valid = place_of(options_, Split::kValid);
    for (SplitPlace* place : {&train, &valid}) {
      place->folder = without_links(place->folder);
      if (place->list) place->list = without_links(*place->list);
    }
    if (train != valid && !holds(train, valid) && !holds(valid, train)) return;
    problems.add(options_.valid.list ? "valid.list" : "valid.folder",
                 "these images are trained on as well; name others");
  }
  std::vector<std::string> files(Split split) const override {
    const SplitPlace place = place_of(options_, split);
    std::vector<std::string> files{place.folder};
    if (place.list) files.push_back(*place.list);
    return files;
  }
  /// Lists the images without opening them.
  std::unique_ptr<SampleSet> open(Split split) const override {
    const SplitPlace place = place_of(options_, split);
    const ClassOptions& classes = options_.classes;
    ClassLabels labels;
    if (!place.list)
      labels = label_classes(find_classes(split).names, classes, place.folder, split);
    return std::make_unique<ImageFolderSet>(place, classes, std::move(labels),
                                            options_.photographs);
  }

 private:
  FoundClasses find_classes(Split split) const {
    const SplitPlace place = place_of(options_, split);
    if (place.list) return {*place.list, {}};
    return {place.folder, class_folders(place.folder)};
  }

  Options options_;
};

const Registration<DataSource, ImageFolderSource> registered_image_folder_source{
    "image_folder", "JPEG and PNG files in class folders, or named in a list"};

}  // namespace
}  // namespace shoal
