#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/class_options.h"
#include "runtime/data/crop.h"
#include "runtime/data/data_source.h"
#include "runtime/data/images/cifar_records.h"
#include "runtime/data/images/resized_crop.h"
#include "runtime/data/split_files.h"
#include "runtime/files/data_file.h"

namespace shoal {
namespace {

constexpr ImageShape kShape{CifarLayout::kChannels, CifarLayout::kSide, CifarLayout::kSide};

std::vector<std::string> official_files(int64_t classes, Split split) {
  if (classes == 100) return {split == Split::kTrain ? "train.bin" : "test.bin"};
  if (split == Split::kValid) return {"test_batch.bin"};
  std::vector<std::string> files;
  for (int batch = 1; batch <= 5; ++batch) {
    files.push_back("data_batch_" + std::to_string(batch) + ".bin");
  }
  return files;
}

struct CifarSplit {
  std::optional<std::vector<std::string>> files;
  std::optional<int64_t> samples;
  Choice<Crop> crop{"center"};

  static constexpr auto fields() {
    return std::tuple{
        field("files", &CifarSplit::files, "files in data.path; auto = those of the official split",
              unset_word("auto"), not_empty(), at_least_one(), file_path()),
        field("samples", &CifarSplit::samples,
              "use only this many records, the first of the files; auto = all", unset_word("auto"),
              at_least(1)),
        field("crop", &CifarSplit::crop,
              "which part of an image is cropped and resized to data.image_size")};
  }
};

struct CifarOptions {
  std::optional<std::string> path;
  ClassOptions classes;
  int64_t image_size = CifarLayout::kSide;
  OnCorrupt on_corrupt = OnCorrupt::kFail;
  CifarSplit train;
  CifarSplit valid;
  ImageOptions images;

  static constexpr auto fields() {
    return std::tuple{
        field("path", &CifarOptions::path,
              "folder of the files, relative to the working directory; auto = the archive's own "
              "name, cifar-10-batches-bin or cifar-100-binary",
              unset_word("auto"), not_empty(), file_path(), on_resume(OnResume::kFree)),
        inlined(&CifarOptions::classes),
        field("image_size", &CifarOptions::image_size, "height and width after the crop",
              unit("pixels"), in_range(1, 4096)),
        field("on_corrupt", &CifarOptions::on_corrupt,
              "a record with an invalid label: fail, or skip = use the next valid one, for at most "
              "1e-4 of the records"),
        field("train", &CifarOptions::train, "what is trained on"),
        field("valid", &CifarOptions::valid, "what is evaluated on", changes_scores()),
        inlined(&CifarOptions::images)};
  }
  /// Refuses class counts other than 10 and 100, and a file named twice.
  void validate(Problems& problems) const {
    if (const auto given = classes.classes; given && given != 10 && given != 100) {
      problems.add("classes", "must be 10 or 100 (CIFAR-100 by fine labels)");
    }
    refuse_repeated(paths(Split::kTrain), paths(Split::kValid), problems);
  }

  /// 10 or 100; 10 while it is not known.
  int64_t num_classes() const { return classes.classes.value_or(10); }
  /// Folder of the files.
  std::string folder() const {
    return path.value_or(num_classes() == 100 ? "cifar-100-binary" : "cifar-10-batches-bin");
  }
  /// The names in the file beside those of the archive of `count` classes or, without it, of the
  /// other archive; none without either.
  FoundClasses classes_beside(int64_t count) const {
    std::vector<std::string> files{"batches.meta.txt", "fine_label_names.txt"};
    if (count == 100) std::ranges::reverse(files);
    for (const std::string& path : paths_in(folder(), files)) {
      std::ifstream stream = open_unless_pipe(path);
      FoundClasses found{path, {}};
      for (std::string line; std::getline(stream, line);) {
        if (!line.empty() && line.back() == '\r') line.pop_back();
        if (!line.empty()) found.names.push_back(line);
      }
      if (!found.names.empty()) return found;
    }
    return {folder(), {}};
  }
  /// Paths of a split's files.
  std::vector<std::string> paths(Split split) const {
    const CifarSplit& chosen = split == Split::kTrain ? train : valid;
    return paths_in(folder(), chosen.files.value_or(official_files(num_classes(), split)));
  }
};

/// Files one after the other.
class CifarSet final : public SampleSet {
 public:
  /// The first `most` records.
  CifarSet(const std::vector<std::string>& paths, ClassLabels labels, CifarLayout layout,
           OnCorrupt on_corrupt, std::optional<int64_t> most)
      : labels_(std::move(labels)) {
    constexpr size_t kMostBad = 1000;  // of a file; far above the share allowed
    for (const std::string& path : paths) {
      files_.emplace_back(path, layout, on_corrupt == OnCorrupt::kSkip ? kMostBad : 0);
      size_ += files_.back().size();
      end_of_file_.push_back(size_);
    }
    if (most && *most > size()) {
      throw DataError(fmt::format("{} and the files beside it have {}; samples is {}",
                                  paths.front(), counted(size(), "record"), *most),
                      "lower samples, or name more files");
    }
    if (most) size_ = *most;
    substitute_bad_records();
  }

  int64_t size() const override { return size_; }
  std::vector<int64_t> substituted() const override {
    std::vector<int64_t> indices;
    for (const auto& [index, substitute] : substitutes_) indices.push_back(index);
    return indices;
  }
  std::vector<std::string> notes() const override { return labels_.notes; }
  std::vector<std::string> warnings() const override { return labels_.warnings; }

  std::string fingerprint() const override {
    std::vector<std::string> paths;
    for (const CifarFile& file : files_) paths.push_back(file.path());
    return fingerprint_of(paths);
  }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    const auto substitute = substitutes_.find(index);
    if (substitute != substitutes_.end()) index = substitute->second;
    const auto end = std::upper_bound(end_of_file_.begin(), end_of_file_.end() - 1, index);
    const auto file = static_cast<size_t>(end - end_of_file_.begin());
    CifarRecord record = files_[file].read(index - first_of(file));
    return {.shape = kShape,
            .pixel_CHW = std::move(record.pixel_CHW),
            .label = labels_.of(record.label)};
  }

 private:
  int64_t first_of(size_t file) const { return file == 0 ? 0 : end_of_file_[file - 1]; }

  /// Gives each bad record the next good one, the first after the last.
  void substitute_bad_records() {
    std::string first_bad;
    for (size_t file = 0; file < files_.size(); ++file) {
      for (const BadCifarRecord& bad : files_[file].bad_records()) {
        const int64_t index = first_of(file) + bad.index;
        if (index >= size()) continue;
        if (first_bad.empty()) first_bad = files_[file].path() + ": " + bad.what;
        substitutes_[index] = 0;
      }
    }
    constexpr int64_t kRecordsPerBad = 10000;
    const int64_t num_bad = std::ssize(substitutes_), allowed = size() / kRecordsPerBad;
    if (num_bad > allowed) {
      throw DataError(
          fmt::format("{}; {} of {} records are corrupt, and on_corrupt: skip allows {}", first_bad,
                      num_bad, size(), allowed),
          "fetch the files again");
    }
    for (auto& [index, substitute] : substitutes_) {
      substitute = index;
      while (substitutes_.contains(substitute)) substitute = (substitute + 1) % size();
    }
  }

  ClassLabels labels_;
  int64_t size_ = 0;
  std::deque<CifarFile> files_;
  std::vector<int64_t> end_of_file_;  // records up to and with each file
  std::map<int64_t, int64_t> substitutes_;
};

/// Data source `cifar`: CIFAR-10 or CIFAR-100 in the official binary layout. Rules of keys: in a
/// list, not_empty() refuses an empty text and at_least_one() an empty list; changes_scores() makes
/// a resume with another value warn that scores are not comparable.
class CifarSource : public FilesSource<CifarOptions> {
 public:
  static constexpr Sketch kSketch{
      .image = ImageShape{3, 32, 32},
      .path = "${env:CIFAR10}",
      .files = "data_batch_1.bin, ...",
      .lines =
          "  train: {files: [data_batch_1.bin, data_batch_2.bin, data_batch_3.bin, "
          "data_batch_4.bin]}\n"
          "  valid: {files: [data_batch_5.bin]}   # held out from the training files\n",
      .augment = "  augment: {crop_padding: 4, flip: true}\n"};  ///< starter recipe of `shoal new`

  /// Looks for the names beside the files, which tell CIFAR-10 from CIFAR-100.
  explicit CifarSource(const Options& options) : FilesSource(options) {
    ClassOptions& classes = options_.classes;
    if (!classes.classes)
      classes.classes = options_.classes_beside(100).names.size() == 100 ? 100 : 10;
    classes.find([&](Split) { return options_.classes_beside(*classes.classes); });
  }

  DataShape shape() const override {
    return {.source = "cifar",
            .image = image(),
            .has_unit_pixels = keeps_unit_pixels(options_.images),
            .classes = options_.num_classes()};
  }
  /// Names from batches.meta.txt, or fine_label_names.txt for 100 classes, beside the files.
  std::vector<std::string> class_names() const override { return options_.classes.class_names; }
  std::optional<ImageTransform> image_transform() const override {
    // Over the training images of each set.
    const ChannelStats cifar10{{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};
    const ChannelStats cifar100{{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}};
    ImageTransform transform = shoal::image_transform(
        image(), options_.images, options_.num_classes() == 100 ? cifar100 : cifar10);
    transform.train_crop = crop_of(options_.train, "data.train.crop");
    transform.valid_crop = crop_of(options_.valid, "data.valid.crop");
    return transform;
  }
  /// Also reports as ClassOptions::check.
  void check_training(Problems& problems) const override {
    FilesSource::check_training(problems);
    const auto beside_both = [this](Split split) {
      return split == Split::kTrain ? options_.classes_beside(options_.num_classes())
                                    : FoundClasses{};
    };
    options_.classes.check(beside_both, problems);
  }
  std::unique_ptr<SampleSet> open(Split split) const override {
    const CifarSplit& chosen = split == Split::kTrain ? options_.train : options_.valid;
    const int64_t classes = options_.num_classes();
    const auto [place, names] = options_.classes_beside(classes);
    return std::make_unique<CifarSet>(options_.paths(split),
                                      label_classes(names, options_.classes, place, split),
                                      CifarLayout{classes}, options_.on_corrupt, chosen.samples);
  }

 private:
  ImageShape image() const { return {3, options_.image_size, options_.image_size}; }
  /// The crop of a split; null if images are used as they are.
  std::shared_ptr<const Crop> crop_of(const CifarSplit& split, const std::string& key) const {
    using Center = ResizedCrop</*kIsRandom=*/false>;
    const bool takes_whole =
        options_.image_size == CifarLayout::kSide && split.crop.name() == "center" &&
        split.crop.options<Center>().resize.value_or(CifarLayout::kSide) == CifarLayout::kSide;
    if (takes_whole) return nullptr;
    return Registry<Crop>::create(split.crop, {options_.image_size, key});
  }
};

const Registration<DataSource, CifarSource> registered_cifar_source{
    "cifar", "CIFAR-10 or CIFAR-100, from the official binary files"};

}  // namespace
}  // namespace shoal
