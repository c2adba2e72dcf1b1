#include "runtime/data/images/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace shoal {
namespace {

constexpr int64_t kKinds = 10;
constexpr int64_t kChannels = 3;

using Colour = std::array<double, kChannels>;
using Bytes = std::array<uint8_t, kChannels>;

/// Saturated colour of a hue in [0, 1], at brightness `value`.
Colour colour_of(double hue, double value) {
  Colour colour;
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    const double turn = hue + static_cast<double>(channel) / kChannels;
    const double phase = (turn - std::floor(turn)) * 6.0;
    colour[static_cast<size_t>(channel)] =
        value * std::clamp(std::abs(phase - 3.0) - 1.0, 0.0, 1.0);
  }
  return colour;
}

Bytes bytes_of(const Colour& colour) {
  Bytes bytes;
  for (size_t i = 0; i < kChannels; ++i) bytes[i] = static_cast<uint8_t>(colour[i] * 255.0 + 0.5);
  return bytes;
}

bool is_even(double cell) { return static_cast<int64_t>(std::floor(cell)) % 2 == 0; }

/// Whether a point lies on the shape; x to the right and y down, in units of its half extent.
/// Within [-1, 1]² for every kind, and symmetric in x but for the checkers' colours.
bool covers(int64_t kind, double x, double y) {
  const double across = std::abs(x);
  const double along = std::abs(y);
  const double square = x * x + y * y;
  const double largest = std::max(across, along);
  switch (kind) {
    case 0:  // disc
      return square <= 1.0;
    case 1:  // square
      return largest <= 0.86;
    case 2:  // triangle, tip up
      return along <= 0.9 && across <= (y + 0.9) / 1.8;
    case 3:  // cross
      return largest <= 1.0 && std::min(across, along) <= 0.3;
    case 4:  // ring
      return square <= 1.0 && square >= 0.3;
    case 5:  // horizontal stripes
      return largest <= 0.95 && is_even((y + 0.95) / 0.38);
    case 6:  // vertical stripes
      return largest <= 0.95 && is_even((x + 0.95) / 0.38);
    case 7:  // diamond
      return across + along <= 1.0;
    case 8:  // diagonal cross
      return largest <= 0.9 && std::abs(across - along) <= 0.38;
    default:  // checkers
      return largest <= 0.95 && is_even((x + 0.95) / 0.475) == is_even((y + 0.95) / 0.475);
  }
}

/// What a stream of this source is for; part of what a seed means.
enum class Draw : uint64_t { kScene = 0, kNoise = 1 };

struct Scene {
  int64_t label;
  double radius, centre_x, centre_y;  // pixels
  Bytes shape, ground;
};

Scene draw_scene(const ShapesSource::Options& options, const ScalarDraws& draws, int64_t index) {
  uint32_t used = 0;
  const auto between = [&](double from, double to) {
    return from + (to - from) * draws.uniform(static_cast<uint64_t>(index), used++);
  };
  Scene scene;
  scene.label = index % options.classes;  // equally many of each
  const auto side = static_cast<double>(options.image_size);
  scene.radius = side * between(0.25, 0.45);
  scene.centre_x = between(scene.radius, side - scene.radius);
  scene.centre_y = between(scene.radius, side - scene.radius);
  const int64_t bands = (options.classes + kKinds - 1) / kKinds;
  const double band = static_cast<double>(scene.label / kKinds) + between(0.0, 1.0);
  const Colour bright = colour_of(band / static_cast<double>(bands), between(0.7, 1.0));
  Colour dark;
  dark.fill(between(0.0, 0.4));
  const bool is_bright = between(0.0, 1.0) < 0.5;
  scene.shape = bytes_of(is_bright ? bright : dark);
  scene.ground = bytes_of(is_bright ? dark : bright);
  return scene;
}

class ShapesSet final : public SampleSet {
 public:
  ShapesSet(const ShapesSource::Options& options, Split split)
      : options_(options),
        size_(samples_of(options, split)),
        scene_draws_(stream(split, Draw::kScene)),
        noise_key_(stream(split, Draw::kNoise).key()) {}

  int64_t size() const override { return size_; }

  Sample read(int64_t index, int64_t /*epoch*/) const override {
    const Scene scene = draw_scene(options_, scene_draws_, index);
    Sample sample;
    sample.label = scene.label;
    sample.shape = {kChannels, options_.image_size, options_.image_size};
    sample.pixel_CHW.resize(static_cast<size_t>(sample.shape.bytes()));
    paint(scene, sample);
    if (options_.noise > 0.0) add_noise(index, sample);
    return sample;
  }

 private:
  Stream stream(Split split, Draw draw) const {
    return drawn_stream(options_.seed, "shapes", split, static_cast<uint64_t>(draw));
  }

  void paint(const Scene& scene, Sample& sample) const {
    const int64_t side = options_.image_size;
    const auto plane = static_cast<size_t>(sample.shape.pixels());
    uint8_t* pixel = sample.pixel_CHW.data();
    for (int64_t row = 0; row < side; ++row) {
      const double y = (static_cast<double>(row) + 0.5 - scene.centre_y) / scene.radius;
      for (int64_t column = 0; column < side; ++column, ++pixel) {
        const double x = (static_cast<double>(column) + 0.5 - scene.centre_x) / scene.radius;
        const Bytes& value = covers(scene.label % kKinds, x, y) ? scene.shape : scene.ground;
        for (size_t channel = 0; channel < kChannels; ++channel) {
          pixel[channel * plane] = value[channel];
        }
      }
    }
  }

  /// Uniform noise, one random byte a value.
  void add_noise(int64_t index, Sample& sample) const {
    constexpr size_t kBytesAtOnce = 16;
    std::array<int, 256> change;
    for (int byte = 0; byte < 256; ++byte) {
      change[static_cast<size_t>(byte)] =
          static_cast<int>(std::lround((byte - 127.5) * 2.0 * options_.noise));
    }
    std::vector<uint8_t>& pixels = sample.pixel_CHW;
    for (size_t first = 0; first < pixels.size(); first += kBytesAtOnce) {
      const auto block = static_cast<uint32_t>(first / kBytesAtOnce);
      const philox::Words words = philox::words_at(noise_key_, static_cast<uint64_t>(index), block);
      const size_t end = std::min(first + kBytesAtOnce, pixels.size());
      for (size_t i = first; i < end; ++i) {
        const uint32_t byte = words.w[i % 4] >> (8 * (i % kBytesAtOnce / 4)) & 255u;
        pixels[i] = static_cast<uint8_t>(std::clamp(pixels[i] + change[byte], 0, 255));
      }
    }
  }

  ShapesSource::Options options_;
  int64_t size_;
  ScalarDraws scene_draws_;
  philox::StreamKey noise_key_;
};

const Registration<DataSource, ShapesSource> registered_shapes_source{
    "shapes", "procedural images of shapes; needs no files"};

}  // namespace

DataShape ShapesSource::shape() const {
  return {.source = "shapes",
          .image = ImageShape{kChannels, options_.image_size, options_.image_size},
          .has_unit_pixels = keeps_unit_pixels(options_.images),
          .classes = options_.classes};
}

std::vector<std::string> ShapesSource::class_names() const {
  constexpr std::array kKinds{"disc",
                              "square",
                              "triangle",
                              "cross",
                              "ring",
                              "horizontal stripes",
                              "vertical stripes",
                              "diamond",
                              "diagonal cross",
                              "checkers"};
  if (options_.classes > std::ssize(kKinds)) return {};  // hues tell them apart, too
  return {kKinds.begin(), kKinds.begin() + options_.classes};
}

std::optional<ImageTransform> ShapesSource::image_transform() const {
  // Measured with the default options; other options change them little.
  const ChannelStats measured{{0.32, 0.32, 0.32}, {0.30, 0.30, 0.30}};
  return shoal::image_transform(*shape().image, options_.images, measured);
}

std::unique_ptr<SampleSet> ShapesSource::open(Split split) const {
  return std::make_unique<ShapesSet>(options_, split);
}

}  // namespace shoal
