#include "runtime/data/images/photographs.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/images/image_file.h"

namespace shoal {
namespace {

constexpr int64_t kImagesPerCorrupt = 10'000;
constexpr const char* kFetchAgain = "fetch the files again, or take them out of the data set";

}  // namespace

void PhotographOptions::validate(Problems& problems) const {
  if (!decode_side || *decode_side >= image_size) return;
  problems.add("decode_side",
               fmt::format("{} is below image_size, {}; raise it", *decode_side, image_size));
}

ImageTransform photograph_transform(const PhotographOptions& options,
                                    const Choice<Crop>& train_crop,
                                    const Choice<Crop>& valid_crop) {
  // Over ImageNet's training images.
  const ChannelStats imagenet{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  ImageTransform transform = image_transform(options.shape(), options.images, imagenet);
  const int64_t size = options.image_size;
  transform.decode_side = options.decode_side;
  transform.train_crop = Registry<Crop>::create(train_crop, {size, "data.train.crop"});
  transform.valid_crop = Registry<Crop>::create(valid_crop, {size, "data.valid.crop"});
  return transform;
}

Sample CorruptImages::read(int64_t index, const Decode& decode) const {
  if (on_corrupt_ == OnCorrupt::kFail) return decode(index);
  std::string last;
  for (int64_t tried = 0; tried < size_; ++tried) {
    const int64_t candidate = (index + tried) % size_;
    if (is_met(candidate)) continue;
    try {
      return decode(candidate);
    } catch (const CorruptImage& corrupt) {
      note(candidate, last = corrupt.what());
    }
  }
  throw DataError("none of the images can be decoded, the last: " + last, kFetchAgain);
}

std::vector<int64_t> CorruptImages::met() const {
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> indices;
  for (const auto& [index, what] : what_of_met_) indices.push_back(index);
  return indices;
}

std::vector<std::string> CorruptImages::lines() const {
  constexpr size_t kMostLines = 10;
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [index, what] : what_of_met_) {
    if (lines.size() < kMostLines) lines.push_back(what);
  }
  return lines;
}

bool CorruptImages::is_met(int64_t index) const {
  const std::lock_guard lock(mutex_);
  return what_of_met_.contains(index);
}

void CorruptImages::note(int64_t index, const std::string& what) const {
  const std::lock_guard lock(mutex_);
  what_of_met_.emplace(index, what);
  const int64_t allowed = std::max<int64_t>(1, size_ / kImagesPerCorrupt);
  if (std::ssize(what_of_met_) <= allowed) return;
  throw DataError(fmt::format("{}; {} of {} met so far are corrupt, and on_corrupt: skip allows {}",
                              what, what_of_met_.size(), counted(size_, "image"), allowed),
                  kFetchAgain);
}

}  // namespace shoal
