#include "runtime/data/augment.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/random/random_stream.h"

namespace shoal {
namespace {

constexpr size_t kByteValues = 256;

const std::vector<double>& pick(const std::optional<std::vector<double>>& set,
                                const std::vector<double>& source, int64_t channels,
                                const char* key) {
  const std::vector<double>& values = set ? *set : source;
  if (std::ssize(values) == channels) return values;
  throw ConfigError(std::string("data.normalise.") + key + ": " +
                    counted(std::ssize(values), "value") + " for images of " +
                    counted(channels, "channel"));
}

}  // namespace

ImageTransform image_transform(ImageShape shape, const ImageOptions& options,
                               const ChannelStats& source) {
  const NormaliseOptions& normalise = options.normalise;
  ImageTransform transform{shape,
                           options.augment,
                           {pick(normalise.mean, source.mean, shape.channels, "mean"),
                            pick(normalise.std, source.std, shape.channels, "std")},
                           nullptr,
                           nullptr};
  // A loader makes its own; what is wrong with them is known here already.
  TransformChain(options.augment.transforms, shape.channels, {transform.stats.mean});
  return transform;
}

bool keeps_unit_pixels(const ImageOptions& options) {
  const auto is_all = [](const std::optional<std::vector<double>>& values, double wanted) {
    return values && std::ranges::all_of(*values, [&](double value) { return value == wanted; });
  };
  return is_all(options.normalise.mean, 0.0) && is_all(options.normalise.std, 1.0);
}

AugmentDraw draw_augment(const AugmentOptions& options, uint64_t seed, int64_t position,
                         int64_t view) {
  const ScalarDraws draws({seed, Purpose::kAugment, 0, static_cast<uint64_t>(view)});
  const auto id = static_cast<uint64_t>(position);
  const int64_t padding = options.crop_padding;
  AugmentDraw draw;
  draw.flip = options.flip && draws.chance(id, 0, 0.5);
  draw.down = draws.integer(id, 1, 2 * padding + 1) - padding;
  draw.right = draws.integer(id, 2, 2 * padding + 1) - padding;
  return draw;
}

void shift(EditedImage& image, AugmentDraw& draw) {
  const int64_t down = std::exchange(draw.down, 0), right = std::exchange(draw.right, 0);
  if (down == 0 && right == 0) return;
  const ImageShape shape = image.shape;
  uint8_t* shifted = image.second_image();
  std::ranges::fill(image.scratch, uint8_t{0});
  const int64_t from = std::clamp<int64_t>(-right, 0, shape.width);
  const int64_t to = std::clamp<int64_t>(shape.width - right, from, shape.width);
  for (int64_t channel = 0; channel < shape.channels; ++channel) {
    for (int64_t y = std::max<int64_t>(0, -down); y < std::min(shape.height, shape.height - down);
         ++y) {
      const uint8_t* row = image.plane(channel) + (y + down) * shape.width + right;
      std::copy(row + from, row + to, shifted + (channel * shape.height + y) * shape.width + from);
    }
  }
  image.take_scratch();
}

PixelWriter::PixelWriter(ImageShape shape, const ChannelStats& stats) : shape_(shape) {
  table_.reserve(static_cast<size_t>(shape.channels) * kByteValues);
  for (size_t channel = 0; channel < static_cast<size_t>(shape.channels); ++channel) {
    for (size_t byte = 0; byte < kByteValues; ++byte) {
      const double value = static_cast<double>(byte) / 255.0;
      table_.push_back((value - stats.mean.at(channel)) / stats.std.at(channel));
    }
  }
}

template <class T>
void PixelWriter::write(std::span<const uint8_t> pixel_CHW, const AugmentDraw& draw,
                        std::span<T> value_CHW) const {
  const int64_t height = shape_.height;
  const int64_t width = shape_.width;
  // Columns of the output, before the flip, that lie on the image; the rest is border.
  const int64_t from = std::clamp<int64_t>(-draw.right, 0, width);
  const int64_t to = std::clamp<int64_t>(width - draw.right, 0, width);
  std::array<T, kByteValues> value_of;
  for (int64_t channel = 0; channel < shape_.channels; ++channel) {
    const double* entry = table_.data() + channel * static_cast<int64_t>(kByteValues);
    std::copy(entry, entry + kByteValues, value_of.begin());
    for (int64_t y = 0; y < height; ++y) {
      T* row = value_CHW.data() + (channel * height + y) * width;
      const int64_t source_y = y + draw.down;
      if (source_y < 0 || source_y >= height || from >= to) {
        std::fill(row, row + width, value_of[0]);
        continue;
      }
      const uint8_t* source = pixel_CHW.data() + (channel * height + source_y) * width;
      std::fill(row, row + from, value_of[0]);
      for (int64_t x = from; x < to; ++x) row[x] = value_of[source[x + draw.right]];
      std::fill(row + to, row + width, value_of[0]);
      if (draw.flip) std::reverse(row, row + width);
    }
  }
}

template void PixelWriter::write(std::span<const uint8_t>, const AugmentDraw&,
                                 std::span<float>) const;
template void PixelWriter::write(std::span<const uint8_t>, const AugmentDraw&,
                                 std::span<double>) const;

}  // namespace shoal
