#include "runtime/data/transforms/image_changes.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "runtime/device/cpu_clones.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

using ByteTable = std::array<uint8_t, 256>;
using Histogram = std::array<int64_t, 256>;

SHOAL_CPU_CLONES void invert_above(uint8_t* byte, int64_t count, int64_t threshold) {
  if (threshold > 255) return;
  const auto least = static_cast<uint8_t>(threshold < 0 ? 0 : threshold);
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t inverse = static_cast<uint8_t>(255 - byte[i]);
    byte[i] = byte[i] < least ? byte[i] : inverse;
  }
}

SHOAL_CPU_CLONES void mask_bytes(uint8_t* byte, int64_t count, uint8_t mask) {
  for (int64_t i = 0; i < count; ++i) byte[i] &= mask;
}

SHOAL_CPU_CLONES void add_below_half(uint8_t* byte, int64_t count, uint8_t amount) {
  for (int64_t i = 0; i < count; ++i) {
    const auto sum = static_cast<uint8_t>(byte[i] + amount);
    const uint8_t saturated = sum < amount ? 255 : sum;
    byte[i] = byte[i] < 128 ? saturated : byte[i];
  }
}

/// Four tables, since equal neighbours would wait for each other.
Histogram histogram_of(const uint8_t* byte, int64_t count) {
  std::array<std::array<uint32_t, 256>, 4> part{};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) ++part[lane][byte[i + static_cast<int64_t>(lane)]];
  }
  for (; i < count; ++i) ++part[0][byte[i]];
  Histogram sum{};
  for (size_t value = 0; value < 256; ++value) {
    sum[value] = int64_t{part[0][value]} + part[1][value] + part[2][value] + part[3][value];
  }
  return sum;
}

ByteTable identity() {
  ByteTable table{};
  std::iota(table.begin(), table.end(), uint8_t{0});
  return table;
}

ByteTable stretching(const Histogram& histogram) {
  const auto is_used = [](int64_t count) { return count > 0; };
  const auto lowest = std::ranges::find_if(histogram, is_used);
  const auto highest = std::find_if(histogram.rbegin(), histogram.rend(), is_used);
  const auto low = static_cast<double>(lowest - histogram.begin());
  const auto high = static_cast<double>(histogram.rend() - highest - 1);
  ByteTable table = identity();
  if (high <= low) return table;
  const double scale = 255.0 / (high - low), offset = -low * scale;
  for (size_t value = 0; value < 256; ++value) {
    const double stretched = static_cast<double>(value) * scale + offset;
    table[value] =
        static_cast<uint8_t>(std::clamp(static_cast<int64_t>(stretched), int64_t{0}, int64_t{255}));
  }
  return table;
}

ByteTable evening(const Histogram& histogram) {
  const int64_t all = std::accumulate(histogram.begin(), histogram.end(), int64_t{0});
  const auto last =
      std::find_if(histogram.rbegin(), histogram.rend(), [](int64_t count) { return count > 0; });
  ByteTable table = identity();
  const int64_t step = (all - *last) / 255;
  if (step == 0) return table;
  int64_t below = step / 2;
  for (size_t value = 0; value < 256; ++value) {
    table[value] = static_cast<uint8_t>(std::min<int64_t>(below / step, 255));
    below += histogram[value];
  }
  return table;
}

/// A table for each channel, from its histogram.
template <class MakeTable>
void apply_tables(EditedImage& image, const MakeTable& make_table) {
  const int64_t pixels = image.shape.pixels();
  for (int64_t channel = 0; channel < image.shape.channels; ++channel) {
    uint8_t* plane = image.plane(channel);
    const ByteTable table = make_table(histogram_of(plane, pixels));
    for (int64_t i = 0; i < pixels; ++i) plane[i] = table[plane[i]];
  }
}

/// Inverts the bright pixels.
class Solarise final : public PixelTransform {
 public:
  struct Options {
    int64_t threshold = 128;

    static constexpr auto fields() {
      return std::tuple{field("threshold", &Options::threshold,
                              "smallest value that is inverted; 256 = none", in_range(0, 256))};
    }
  };

  explicit Solarise(const Options& options) : threshold_(options.threshold) {}
  bool needs_colours() const override { return false; }
  void apply(EditedImage& image, const TransformDraws&) const override {
    solarise(image, threshold_);
  }

 private:
  int64_t threshold_;
};

const Registration<PixelTransform, Solarise> registered_solarise{"solarise",
                                                                 "bright pixels inverted"};

}  // namespace

void invert(EditedImage& image) { solarise(image, 0); }

void solarise(EditedImage& image, int64_t threshold) {
  invert_above(image.pixel_CHW.data(), image.shape.bytes(), threshold);
}

void solarise_add(EditedImage& image, int64_t amount) {
  add_below_half(image.pixel_CHW.data(), image.shape.bytes(),
                 static_cast<uint8_t>(std::clamp<int64_t>(amount, 0, 255)));
}

void posterise(EditedImage& image, int64_t bits) {
  const int64_t lost = 8 - std::clamp<int64_t>(bits, 0, 8);
  mask_bytes(image.pixel_CHW.data(), image.shape.bytes(), static_cast<uint8_t>(0xFF << lost));
}

void auto_contrast(EditedImage& image) { apply_tables(image, stretching); }

void equalise(EditedImage& image) { apply_tables(image, evening); }

}  // namespace shoal
