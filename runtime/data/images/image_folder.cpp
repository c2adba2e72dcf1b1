#include "runtime/data/images/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/file_fingerprint.h"
#include "runtime/data/images/image_file.h"
#include "runtime/data/images/image_list.h"
#include "runtime/data/split_files.h"
#include "runtime/files/data_file.h"
#include "runtime/files/sha256.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

/// Where a split's images are, whichever split it is.
struct SplitPlace {
  std::string folder;
  std::optional<std::string> list;

  bool operator==(const SplitPlace&) const = default;
};

SplitPlace place_of(const ImageFolderSource::Options& options, Split split) {
  const auto place = [&](const auto& chosen) {
    const fs::path folder = paths_in(options.path, {chosen.folder}).front();
    SplitPlace found{(folder.has_filename() ? folder : folder.parent_path()).string(), {}};
    if (chosen.list) found.list = paths_in(options.path, {*chosen.list}).front();
    return found;
  };
  return split == Split::kTrain ? place(options.train) : place(options.valid);
}

/// The place with links resolved, as absolute paths, as far as these exist.
SplitPlace without_links(SplitPlace place) {
  const auto resolve = [](std::string& path) {
    std::error_code failed;
    const fs::path found = fs::weakly_canonical(path, failed);
    if (!failed) path = found.string();
  };
  resolve(place.folder);
  if (place.list) resolve(*place.list);
  return place;
}

/// Whether all images of a folder are a split, and the other split's folder is it or inside it.
bool holds(const SplitPlace& all, const SplitPlace& other) {
  return !all.list &&
         (fs::path(other.folder) / "").string().starts_with((fs::path(all.folder) / "").string());
}

/// Labels are numbers of folders, so the splits must have the same folders. Skips a missing split.
void require_equal_classes(const std::string& train, const std::string& valid) {
  if (!fs::is_directory(train) || !fs::is_directory(valid)) return;
  const std::vector<std::string> trained = class_folders(train), judged = class_folders(valid);
  const auto [a, b] = std::ranges::mismatch(trained, judged);
  if (a == trained.end() || b == judged.end()) return;  // their number is checked for each
  throw DataError(fmt::format("{} and {} have other class folders, the first being {} and {}",
                              train, valid, *a, *b),
                  "labels are their places in order of name, and must mean the same in both");
}

class ImageFolderSet final : public SampleSet {
 public:
  ImageFolderSet(SplitPlace place, std::optional<int64_t> num_classes,
                 const PhotographOptions& photographs)
      : hint_(place.list ? "the list " + *place.list + " names it; correct the list"
                         : "was it removed after the run began?"),
        folder_(std::move(place.folder)),
        images_(place.list ? images_of_list(*place.list, num_classes)
                           : images_of_folder(folder_, num_classes)),
        decode_side_(photographs.decode_side),
        corrupt_(std::ssize(images_), photographs.on_corrupt) {}

  int64_t size() const override { return std::ssize(images_); }
  std::vector<int64_t> substituted() const override { return corrupt_.met(); }
  std::vector<std::string> notes() const override { return corrupt_.lines(); }

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
  std::optional<int64_t> decode_side_;
  CorruptImages corrupt_;
};

const Registration<DataSource, ImageFolderSource> registered_image_folder_source{
    "image_folder", "JPEG and PNG files in class folders, or named in a list"};

}  // namespace

DataShape ImageFolderSource::shape() const {
  return {.source = "image_folder",
          .image = options_.photographs.shape(),
          .has_unit_pixels = keeps_unit_pixels(options_.photographs.images),
          .classes = options_.classes.value_or(0)};
}

std::vector<std::string> ImageFolderSource::class_names() const {
  const SplitPlace place = place_of(options_, Split::kValid);
  std::error_code unknown;
  if (!options_.classes || place.list || !fs::is_directory(place.folder, unknown)) return {};
  std::vector<std::string> names = class_folders(place.folder);
  return std::ssize(names) == *options_.classes ? names : std::vector<std::string>();
}

std::optional<ImageTransform> ImageFolderSource::image_transform() const {
  return photograph_transform(options_.photographs, options_.train.crop, options_.valid.crop);
}

void ImageFolderSource::check_training(Problems& problems) const {
  const SplitPlace train = without_links(place_of(options_, Split::kTrain));
  const SplitPlace valid = without_links(place_of(options_, Split::kValid));
  const bool is_same_list = train.folder == valid.folder && train.list == valid.list;
  if (!is_same_list && !holds(train, valid) && !holds(valid, train)) return;
  problems.add(options_.valid.list ? "valid.list" : "valid.folder",
               "these images are trained on as well; name others");
}

std::vector<std::string> ImageFolderSource::files() const {
  std::vector<std::string> files;
  for (const Split split : {Split::kTrain, Split::kValid}) {
    const SplitPlace place = place_of(options_, split);
    files.push_back(place.folder);
    if (place.list) files.push_back(*place.list);
  }
  return files;
}

std::unique_ptr<SampleSet> ImageFolderSource::open(Split split) const {
  const SplitPlace train = place_of(options_, Split::kTrain);
  const SplitPlace valid = place_of(options_, Split::kValid);
  if (options_.classes && !train.list && !valid.list) {
    require_equal_classes(train.folder, valid.folder);
  }
  return std::make_unique<ImageFolderSet>(split == Split::kTrain ? train : valid, options_.classes,
                                          options_.photographs);
}

}  // namespace shoal
