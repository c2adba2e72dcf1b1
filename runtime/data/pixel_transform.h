#pragma once

#include <cstdint>
#include <span>
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
  std::vector<uint8_t> scratch = {};  ///< any content

  uint8_t* plane(int64_t channel) { return pixel_CHW.data() + channel * shape.pixels(); }
  /// A buffer for another image of this shape; take_scratch() then makes it the image.
  uint8_t* second_image() {
    scratch.resize(pixel_CHW.size());
    return scratch.data();
  }
  void take_scratch() { pixel_CHW.swap(scratch); }
};

/// One view of one training sample: the key of its random numbers.
struct SampleView {
  uint64_t seed = 0;
  int64_t position = 0;  ///< in the stream of samples
  int64_t view = 0;
};

/// Random numbers of one transform for one view of one sample, by index. Independent of ranks and
/// of the order of calls.
class TransformDraws {
 public:
  /// `key`: different for each transform of a recipe, not 0.
  TransformDraws(uint64_t key, const SampleView& view)
      : TransformDraws(Stream{view.seed, Purpose::kAugment, key, static_cast<uint64_t>(view.view)},
                       static_cast<uint64_t>(view.position)) {}

  /// True with this probability: whether the transform is applied at all; a separate draw.
  bool acts(double probability) const { return draws_.chance(id_, 0, probability); }

  double between(uint32_t index, double least, double most) const {
    return least + (most - least) * draws_.uniform(id_, index + 1);
  }
  /// Uniform in [0, count).
  int64_t integer(uint32_t index, int64_t count) const {
    return draws_.integer(id_, index + 1, count);
  }
  bool chance(uint32_t index, double probability) const {
    return draws_.chance(id_, index + 1, probability);
  }
  /// Normal, with mean 0 and standard deviation 1.
  double normal(uint32_t index) const;
  /// Fills `bytes` with the numbers from index `first` on, 16 bytes from each.
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
    std::vector<double> mean = {};  ///< mean of each channel, pixels in [0, 1]; normalised to 0
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "image transform";

  virtual ~PixelTransform() = default;
  /// True if images must have red, green and blue; otherwise any channels.
  virtual bool needs_colours() const { return true; }
  virtual void apply(EditedImage& image, const TransformDraws& draws) const = 0;
};

/// For options that give a minimum and a maximum: refuses what is not a pair in ascending order.
void require_pair(std::string_view key, const std::vector<double>& pair, Problems& problems);

}  // namespace shoal
