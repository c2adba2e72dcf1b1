#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/data/class_options.h"
#include "runtime/data/crop.h"
#include "runtime/data/data_source.h"

/// Shared by data sources that decode images of any size: image_folder and tar_shards.
namespace shoal {

/// Keys of `data` that these sources share, inlined in their options.
struct PhotographOptions {
  int64_t image_size = 224;
  std::optional<int64_t> decode_side;
  OnCorrupt on_corrupt = OnCorrupt::kFail;
  ImageOptions images;

  static constexpr auto fields() {
    return std::tuple{
        field("image_size", &PhotographOptions::image_size, "height and width after the crop",
              unit("pixels"), in_range(1, 4096)),
        field("decode_side", &PhotographOptions::decode_side,
              "decode JPEG images at 1/2, 1/4 or 1/8 of their size, the smallest whose shorter "
              "side is not below this: much faster for large images; none = at full size",
              unit("pixels"), unset_word("none"), in_range(1, 1 << 16)),
        field("on_corrupt", &PhotographOptions::on_corrupt,
              "an image that cannot be decoded: fail, or skip = use the next valid one; at most "
              "1e-4 of the images may be skipped, but always one"),
        inlined(&PhotographOptions::images)};
  }
  /// Refuses a `decode_side` below `image_size`.
  void validate(Problems& problems) const;
  /// [3, image_size, image_size].
  ImageShape shape() const { return {3, image_size, image_size}; }
};

/// Options of such a source. `SplitOptions`: a split's files and their `crop`; its `kPath` says
/// what the folder data.path is.
template <template <Split> class SplitOptions>
struct PhotographSourceOptions {
  std::string path = ".";
  ClassOptions classes;
  SplitOptions<Split::kTrain> train;
  SplitOptions<Split::kValid> valid;
  PhotographOptions photographs;

  static constexpr auto fields() {
    return std::tuple{
        field("path", &PhotographSourceOptions::path, SplitOptions<Split::kTrain>::kPath,
              not_empty(), file_path(), on_resume(OnResume::kFree)),
        inlined(&PhotographSourceOptions::classes),
        field("train", &PhotographSourceOptions::train, "what is trained on"),
        field("valid", &PhotographSourceOptions::valid, "what is evaluated on", changes_scores()),
        inlined(&PhotographSourceOptions::photographs)};
  }
  DataShape shape(std::string_view source) const {
    return {.source = std::string(source),
            .image = photographs.shape(),
            .has_unit_pixels = keeps_unit_pixels(photographs.images),
            .classes = classes.classes.value_or(kUnknownClasses),
            .has_unknown_classes = !classes.classes};
  }
};

/// What `shoal new` writes for such a source: its data.path, and what that folder holds.
constexpr DataSource::Sketch photograph_sketch(std::string_view path, std::string_view files) {
  return {.image = ImageShape{3, 224, 224},
          .path = path,
          .files = files,
          .lines =
              "  image_size: {image_size}\n"
              "  train: {crop: {name: random_resized, scale: [{least_area}, 1]}}\n"
              "  valid: {crop: {name: center, resize: {resize}}}\n",
          .augment = "  augment: {flip: true}\n"};
}

/// Returns the ImageTransform of these sources: crops to squares of `image_size`, augmentation, and
/// normalisation by ImageNet's mean and deviation unless data.normalise sets others.
ImageTransform photograph_transform(const PhotographOptions& options,
                                    const Choice<Crop>& train_crop, const Choice<Crop>& valid_crop);

/// Applies recipe key `on_corrupt` to images that cannot be decoded. A skipped image is replaced by
/// the next good one, cyclically, so the replacement depends only on the files. Corrupt images are
/// found when they are first read. Counts cover this process only, not other ranks or earlier runs.
class CorruptImages {
 public:
  using Decode = std::function<Sample(int64_t index)>;

  /// `size`: number of images. A process skips at most size / 10,000 of them, but at least one.
  CorruptImages(int64_t size, OnCorrupt on_corrupt) : size_(size), on_corrupt_(on_corrupt) {}

  /// The image at `index`, or its replacement. Safe from several threads at once. Throws: what
  /// `decode` throws, unless it is a skipped CorruptImage; DataError once too many are skipped.
  Sample read(int64_t index, const Decode& decode) const;
  /// Indices of the corrupt images found so far, in order.
  std::vector<int64_t> met() const;
  /// File and reason of the first 10 corrupt images found, a line each.
  std::vector<std::string> lines() const;

 private:
  bool is_met(int64_t index) const;
  void note(int64_t index, const std::string& what) const;

  int64_t size_;
  OnCorrupt on_corrupt_;
  mutable std::mutex mutex_;  ///< guards what_of_met_
  mutable std::map<int64_t, std::string> what_of_met_;
};

}  // namespace shoal
