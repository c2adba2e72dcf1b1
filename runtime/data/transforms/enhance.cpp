#include "runtime/data/transforms/image_changes.h"

#include <cstring>

#include "runtime/device/cpu_clones.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

/// Rounded down, as Pillow does.
SHOAL_INLINE uint8_t clipped(float value) {
  const float above = value < 0.0f ? 0.0f : value;
  return static_cast<uint8_t>(static_cast<int32_t>(above > 255.0f ? 255.0f : above));
}

SHOAL_INLINE uint8_t blended(float plain, float pixel, float factor) {
  return clipped(plain + factor * (pixel - plain));
}

/// All sums stay below 2^24, so float computes exactly what Pillow does in integers.
SHOAL_INLINE float grey_of(uint8_t red, uint8_t green, uint8_t blue) {
  const float sum = static_cast<float>(red) * 19595.0f + static_cast<float>(green) * 38470.0f +
                    static_cast<float>(blue) * 7471.0f + 32768.0f;
  return static_cast<float>(static_cast<int32_t>(sum * 0x1p-16f));
}

SHOAL_CPU_CLONES void blend_with_byte(uint8_t* pixel, int64_t count, float plain, float factor) {
  for (int64_t i = 0; i < count; ++i) pixel[i] = blended(plain, pixel[i], factor);
}

SHOAL_CPU_CLONES void write_grey(const uint8_t* rgb, int64_t pixels, uint8_t* grey) {
  for (int64_t i = 0; i < pixels; ++i) {
    grey[i] = static_cast<uint8_t>(grey_of(rgb[i], rgb[pixels + i], rgb[2 * pixels + i]));
  }
}

SHOAL_CPU_CLONES int64_t sum_of_bytes(const uint8_t* byte, int64_t count) {
  int64_t total = 0;
  for (int64_t begin = 0; begin < count; begin += 65536) {
    const int64_t end = begin + 65536 < count ? begin + 65536 : count;
    uint32_t sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += byte[i];
    total += sum;
  }
  return total;
}

SHOAL_CPU_CLONES void blend_with_grey(uint8_t* rgb, int64_t pixels, float factor) {
  uint8_t* red = rgb;
  uint8_t* green = rgb + pixels;
  uint8_t* blue = rgb + 2 * pixels;
#pragma GCC ivdep
  for (int64_t i = 0; i < pixels; ++i) {
    const float grey = grey_of(red[i], green[i], blue[i]);
    red[i] = blended(grey, red[i], factor);
    green[i] = blended(grey, green[i], factor);
    blue[i] = blended(grey, blue[i], factor);
  }
}

/// A row of the image between its neighbours.
struct RowOfThree {
  const uint8_t* above;
  const uint8_t* row;
  const uint8_t* below;
};

/// Pillow's filter SMOOTH on the inner pixels of a row: 5/13 of the pixel itself and 1/13 of each
/// of its eight neighbours, added in Pillow's order.
SHOAL_CPU_CLONES void smooth_row(const RowOfThree& in, int64_t width, uint8_t* out) {
  constexpr float kSide = 1.0f / 13.0f, kMiddle = 5.0f / 13.0f;
  const uint8_t *above = in.above, *row = in.row, *below = in.below;
#pragma GCC ivdep
  for (int64_t x = 1; x < width - 1; ++x) {
    float sum = 0.5f;
    sum += below[x - 1] * kSide + below[x] * kSide + below[x + 1] * kSide;
    sum += row[x - 1] * kSide + row[x] * kMiddle + row[x + 1] * kSide;
    sum += above[x - 1] * kSide + above[x] * kSide + above[x + 1] * kSide;
    out[x] = clipped(sum);
  }
}

/// In the place of the plain version.
SHOAL_CPU_CLONES void blend_rows(const uint8_t* pixel, int64_t count, float factor,
                                 uint8_t* plain) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) plain[i] = blended(plain[i], pixel[i], factor);
}

/// Takes the colours away and keeps three channels.
class Grey final : public PixelTransform {
 public:
  using Options = NoOptions;

  explicit Grey(const Options&) {}
  void apply(EditedImage& image, const TransformDraws&) const override { make_grey(image); }
};

const Registration<PixelTransform, Grey> registered_grey{"grey", "no colours"};

}  // namespace

void change_brightness(EditedImage& image, double factor) {
  blend_with_byte(image.pixel_CHW.data(), image.shape.bytes(), 0.0f, static_cast<float>(factor));
}

void change_contrast(EditedImage& image, double factor) {
  const int64_t pixels = image.shape.pixels();
  uint8_t* grey = image.second_image();
  write_grey(image.plane(0), pixels, grey);
  const double mean =
      static_cast<double>(sum_of_bytes(grey, pixels)) / static_cast<double>(pixels) + 0.5;
  blend_with_byte(image.pixel_CHW.data(), image.shape.bytes(),
                  static_cast<float>(static_cast<int64_t>(mean)), static_cast<float>(factor));
}

void change_saturation(EditedImage& image, double factor) {
  blend_with_grey(image.plane(0), image.shape.pixels(), static_cast<float>(factor));
}

void change_sharpness(EditedImage& image, double factor) {
  const int64_t height = image.shape.height, width = image.shape.width;
  if (height < 3 || width < 3) return;
  uint8_t* out = image.second_image();
  // The first and last rows and columns stay as they are, as in Pillow.
  std::memcpy(out, image.pixel_CHW.data(), image.pixel_CHW.size());
  for (int64_t channel = 0; channel < image.shape.channels; ++channel) {
    for (int64_t y = 1; y < height - 1; ++y) {
      const uint8_t* row = image.plane(channel) + y * width;
      uint8_t* smooth = out + (row - image.pixel_CHW.data());
      smooth_row({row - width, row, row + width}, width, smooth);
      blend_rows(row, width, static_cast<float>(factor), smooth);
    }
  }
  image.take_scratch();
}

void make_grey(EditedImage& image) {
  const auto pixels = static_cast<size_t>(image.shape.pixels());
  uint8_t* grey = image.second_image();
  write_grey(image.plane(0), image.shape.pixels(), grey);
  for (int64_t channel = 0; channel < 3; ++channel) {
    std::memcpy(image.plane(channel), grey, pixels);
  }
}

}  // namespace shoal
