#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/data_shape.h"
#include "runtime/options/config.h"
#include "runtime/random/random_stream.h"

namespace shoal {

/// An image that transforms change in place, one byte a value.
struct EditedImage {
  ImageShape shape;
  std::vector<uint8_t> pixel_CHW;
  std::vector<uint8_t> scratch = {};  ///< of any content

  uint8_t* plane(int64_t channel) { return pixel_CHW.data() + channel * shape.pixels(); }
  /// Room for another image of this shape, which `take_scratch` makes the image.
  uint8_t* second_image() {
    scratch.resize(pixel_CHW.size());
    return scratch.data();
  }
  void take_scratch() { pixel_CHW.swap(scratch); }
};

/// One view of one sample of a training: what decides its random numbers.
struct SampleView {
  uint64_t seed = 0;
  int64_t position = 0;  ///< in the stream of samples
  int64_t view = 0;
};

/// The random numbers of one transform for one view of one sample, by index. They depend neither
/// on ranks nor on the order of calls.
class TransformDraws {
 public:
  /// `key`: other for each transform of a recipe, and not 0.
  TransformDraws(uint64_t key, const SampleView& view)
      : TransformDraws(Stream{view.seed, Purpose::kAugment, key, static_cast<uint64_t>(view.view)},
                       static_cast<uint64_t>(view.position)) {}

  /// Whether the transform acts at all; a draw of its own.
  bool acts(double probability) const { return draws_.chance(id_, 0, probability); }

  double between(uint32_t index, double least, double most) const {
    return least + (most - least) * draws_.uniform(id_, index + 1);
  }
  /// In [0, count).
  int64_t integer(uint32_t index, int64_t count) const {
    return draws_.integer(id_, index + 1, count);
  }
  bool chance(uint32_t index, double probability) const {
    return draws_.chance(id_, index + 1, probability);
  }
  /// Mean 0, deviation 1.
  double normal(uint32_t index) const;
  /// Fills `bytes` from the numbers of the indices from `first` on, one for each 16 bytes.
  void fill(uint32_t first, std::span<uint8_t> bytes) const;

 private:
  TransformDraws(const Stream& stream, uint64_t id) : draws_(stream), key_(stream.key()), id_(id) {}

  ScalarDraws draws_;
  philox::StreamKey key_;
  uint64_t id_;
};

/// A random change of training images; registered under `data.augment.transforms`.
class PixelTransform {
 public:
  struct Context {
    std::vector<double> mean = {};  ///< of each channel, pixels in [0, 1], which becomes 0
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "image transform";

  virtual ~PixelTransform() = default;
  /// Whether images must have red, green and blue; else it takes any channels.
  virtual bool needs_colours() const { return true; }
  virtual void apply(EditedImage& image, const TransformDraws& draws) const = 0;
};

/// For options that are a least and a most value: refuses what is no pair in order.
void require_pair(std::string_view key, const std::vector<double>& pair, Problems& problems);

}  // namespace shoal
