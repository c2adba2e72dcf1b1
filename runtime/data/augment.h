#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "runtime/data/crop.h"
#include "runtime/data/data_shape.h"
#include "runtime/data/transform_chain.h"
#include "runtime/options/config.h"

namespace shoal {

/// The recipe's section `data.augment`; applies to training images only.
struct AugmentOptions {
  int64_t crop_padding = 0;
  bool flip = false;
  std::vector<TransformOptions> transforms = {};
  int64_t repeats = 1;

  static constexpr auto fields() {
    return std::tuple{
        field("crop_padding", &AugmentOptions::crop_padding,
              "black border around the image, from which a crop of the image's size is taken at a "
              "random position",
              unit("pixels"), in_range(0, 1024)),
        field("flip", &AugmentOptions::flip, "flip horizontally with probability 1/2"),
        field("transforms", &AugmentOptions::transforms,
              "random image transforms, applied in this order after the crop and before the flip"),
        field("repeats", &AugmentOptions::repeats,
              "number of times in a row that each sample is used, with different augmentation "
              "(repeated augmentation); an epoch has the same length, with fewer different samples",
              in_range(1, 64))};
  }
};

/// Mean and standard deviation of each channel, of pixels in [0, 1].
struct ChannelStats {
  std::vector<double> mean;
  std::vector<double> std;
};

/// The recipe's section `data.normalise`: a pixel p in [0, 1] becomes (p - mean) / std.
struct NormaliseOptions {
  std::optional<std::vector<double>> mean;
  std::optional<std::vector<double>> std;

  static constexpr auto fields() {
    return std::tuple{field("mean", &NormaliseOptions::mean, "one per channel; auto = the source's",
                            unset_word("auto"), in_range(-1e3, 1e3)),
                      field("std", &NormaliseOptions::std, "one per channel; auto = the source's",
                            unset_word("auto"), in_range(above(0), 1e3))};
  }
};

/// Keys of `data` that all data sources of images share, inlined in their options.
struct ImageOptions {
  AugmentOptions augment;
  NormaliseOptions normalise;

  static constexpr auto fields() {
    return std::tuple{
        field("augment", &ImageOptions::augment, "random changes of training images"),
        field("normalise", &ImageOptions::normalise, "shift and scale of the channels")};
  }
};

/// True if the recipe sets mean 0 and std 1 for every channel, so that pixels stay in [0, 1].
bool keeps_unit_pixels(const ImageOptions& options);

/// How a source's images are cropped, augmented and normalised for a batch.
struct ImageTransform {
  ImageShape shape;        ///< of the images in a batch
  AugmentOptions augment;  ///< training only
  ChannelStats stats;      ///< one mean and std a channel
  /// Crops for images of any size; null if all have `shape` already.
  std::shared_ptr<const Crop> train_crop = nullptr;
  std::shared_ptr<const Crop> valid_crop = nullptr;
  std::optional<int64_t> decode_side =
      {};  ///< least side of JPEG images when decoded; unset: whole
};

/// Returns a source's ImageTransform without crops. Normalises by the recipe or, by default, by
/// `source`, the data set's own values. Throws ConfigError at `data.normalise` unless there is one
/// value a channel, and for transforms that need other channels than `shape` has.
ImageTransform image_transform(ImageShape shape, const ImageOptions& options,
                               const ChannelStats& source);

/// The random choices for one view (augmented copy) of one sample.
struct AugmentDraw {
  bool flip = false;
  int64_t down = 0;   ///< rows by which the crop moves down, -crop_padding to crop_padding
  int64_t right = 0;  ///< columns by which it moves right, in the same range
};

/// Draws flip and shift for view `view` of the sample at `position` in the stream of training
/// samples. Keyed by (seed, position, view), so independent of the rank layout.
AugmentDraw draw_augment(const AugmentOptions& options, uint64_t seed, int64_t position,
                         int64_t view);

/// Shifts the image by draw.down and draw.right, filling with black. Sets both to 0, so that
/// PixelWriter does not shift the image again.
void shift(EditedImage& image, AugmentDraw& draw);

/// Writes an image into a batch: converts bytes to normalised values, flipping and shifting in the
/// same pass. Order: crop from the black-bordered image, then flip, then normalise.
class PixelWriter {
 public:
  /// One mean and std a channel.
  PixelWriter(ImageShape shape, const ChannelStats& stats);

  /// Both spans hold shape.bytes() values in CHW order. T is float or double.
  template <class T>
  void write(std::span<const uint8_t> pixel_CHW, const AugmentDraw& draw,
             std::span<T> value_CHW) const;

 private:
  ImageShape shape_;
  std::vector<double> table_;  // [channels, 256]: the value of each byte
};

}  // namespace shoal
