#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/data/crop.h"
#include "runtime/data/data_source.h"

/// What sources share that decode images of any size.
namespace shoal {

/// Crops to squares of `image_size`, normalised as ImageNet unless the recipe says otherwise.
ImageTransform photograph_transform(int64_t image_size, const ImageOptions& images,
                                    const Choice<Crop>& train_crop, const Choice<Crop>& valid_crop);

/// What `on_corrupt` makes of images that cannot be decoded. Skipped ones are replaced by the next
/// image that can, the first after the last. Which one that is depends on the files alone. Decoding
/// all of them at opening would take too long, so corrupt ones are known from their first reading
/// on, and their number is checked then.
class CorruptImages {
 public:
  using Decode = std::function<Sample(int64_t index)>;

  /// Of `size` images.
  CorruptImages(int64_t size, OnCorrupt on_corrupt) : size_(size), on_corrupt_(on_corrupt) {}

  /// The image at `index`, or the one that replaces it. Safe from several threads at once. Throws:
  /// what `decode` throws, but for a CorruptImage that is skipped; DataError once more than
  /// most_corrupt(size) are.
  Sample read(int64_t index, const Decode& decode) const;
  /// The indices met so far, in order.
  std::vector<int64_t> met() const;

 private:
  bool is_met(int64_t index) const;
  void note(int64_t index, const std::string& what) const;

  int64_t size_;
  OnCorrupt on_corrupt_;
  mutable std::mutex mutex_;  ///< guards what follows
  mutable std::set<int64_t> met_;
};

}  // namespace shoal
