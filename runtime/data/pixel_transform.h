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

/// Identifies one view (augmented copy) of a training sample, and keys its random numbers.
struct SampleView {
  uint64_t seed = 0;
  int64_t position = 0;  ///< of the sample in the stream of training samples, over all ranks
  int64_t view = 0;      ///< number of the view, from 0
};

/// Random numbers of one transform for one view of one sample. Each is a function of its `index`,
/// which a transform chooses; independent of ranks and of the order of calls.
class TransformDraws {
 public:
  /// `key`: different for each transform of a recipe, not 0.
  TransformDraws(uint64_t key, const SampleView& view)
      : TransformDraws(Stream{view.seed, Purpose::kAugment, key, static_cast<uint64_t>(view.view)},
                       static_cast<uint64_t>(view.position)) {}

  /// True with this probability. Decides if the transform is applied at all; uses no index.
  bool acts(double probability) const { return draws_.chance(id_, 0, probability); }

  /// Uniform in (least, most).
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
  /// Fills `bytes` with random bytes, 16 for each index from `first` on.
  void fill(uint32_t first, std::span<uint8_t> bytes) const;

 private:
  TransformDraws(const Stream& stream, uint64_t id) : draws_(stream), key_(stream.key()), id_(id) {}

  ScalarDraws draws_;
  philox::StreamKey key_;
  uint64_t id_;
};

/// A random change of training images, named in the recipe's list data.augment.transforms.
class PixelTransform {
 public:
  struct Context {
    std::vector<double> mean = {};  ///< of each channel, in [0, 1]; normalisation makes it 0
  };
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "image transform";

  virtual ~PixelTransform() = default;
  /// True if images must have red, green and blue; otherwise any channels.
  virtual bool needs_colours() const { return true; }
  virtual void apply(EditedImage& image, const TransformDraws& draws) const = 0;
};

/// For options that give a range: adds a problem at `key` unless `pair` is {minimum, maximum}.
void require_pair(std::string_view key, const std::vector<double>& pair, Problems& problems);

}  // namespace shoal
