#include "runtime/data/transforms/image_changes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "runtime/device/cpu_clones.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

constexpr int kPasses = 3;

/// A box: 2 radius + 1 pixels of weight `inner`, one of `outer` at each end, in units of 2^-24.
struct Box {
  int64_t radius = 0;
  uint32_t inner = 0, outer = 0;
};

/// Three of these boxes have the variance of the Gaussian; float or double as in Pillow.
Box box_of(double sigma) {
  const auto deviation = static_cast<float>(sigma);
  const float variance = deviation * deviation / kPasses;
  const auto length = static_cast<float>(std::sqrt(12.0 * variance + 1.0));
  const auto whole = static_cast<float>(std::floor((length - 1.0) / 2.0));
  float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
  part /= 6 * (variance - (whole + 1) * (whole + 1));
  const float radius = whole + part;
  Box box{.radius = static_cast<int64_t>(radius)};
  box.inner = static_cast<uint32_t>(static_cast<float>(1 << 24) / (radius * 2 + 1));
  box.outer = ((1u << 24) - static_cast<uint32_t>(box.radius * 2 + 1) * box.inner) / 2;
  return box;
}

/// What a line of results is made of: `count` lines of inputs, one for each pixel of the box from
/// its outer end on, 2 radius + 3 in all.
struct BoxLines {
  const uint8_t* const* line;
  int64_t count;
};

SHOAL_CPU_CLONES void filter_line(const BoxLines& in, const Box& box, uint8_t* out, int64_t size) {
  constexpr int64_t kChunk = 256;
  uint32_t sum[kChunk];
  for (int64_t begin = 0; begin < size; begin += kChunk) {
    const int64_t length = size - begin < kChunk ? size - begin : kChunk;
    const uint8_t* middle = in.line[1] + begin;
    for (int64_t i = 0; i < length; ++i) sum[i] = middle[i];
    for (int64_t k = 2; k < in.count - 1; ++k) {
      const uint8_t* next = in.line[k] + begin;
      for (int64_t i = 0; i < length; ++i) sum[i] += next[i];
    }
    const uint8_t* first = in.line[0] + begin;
    const uint8_t* last = in.line[in.count - 1] + begin;
    uint8_t* result = out + begin;
    for (int64_t i = 0; i < length; ++i) {
      const uint32_t ends = uint32_t{first[i]} + last[i];
      const uint32_t total = sum[i] * box.inner + ends * box.outer + (1u << 23);
      result[i] = static_cast<uint8_t>(total >> 24);
    }
  }
}

/// Rows of a plane, each on its own.
class RowFilter {
 public:
  RowFilter(const Box& box, int64_t width)
      : box_(box), width_(width), padded_(static_cast<size_t>(width + 2 * (box.radius + 1))) {
    for (int64_t k = 0; k < 2 * box.radius + 3; ++k) lines_.push_back(padded_.data() + k);
  }

  void filter(uint8_t* row) {
    const auto border = static_cast<size_t>(box_.radius + 1), width = static_cast<size_t>(width_);
    for (int pass = 0; pass < kPasses; ++pass) {
      std::memset(padded_.data(), row[0], border);
      std::memcpy(padded_.data() + border, row, width);
      std::memset(padded_.data() + border + width, row[width - 1], border);
      filter_line({lines_.data(), std::ssize(lines_)}, box_, row, width_);
    }
  }

 private:
  Box box_;
  int64_t width_;
  std::vector<uint8_t> padded_;
  std::vector<const uint8_t*> lines_;
};

/// The columns of a plane, all at once: rows of `in` into those of `out`.
void filter_columns(const Box& box, ImageShape shape, const uint8_t* in, uint8_t* out) {
  const int64_t count = 2 * box.radius + 3;
  std::vector<const uint8_t*> lines(static_cast<size_t>(count));
  for (int64_t y = 0; y < shape.height; ++y) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t row = std::clamp<int64_t>(y + k - box.radius - 1, 0, shape.height - 1);
      lines[static_cast<size_t>(k)] = in + row * shape.width;
    }
    filter_line({lines.data(), count}, box, out + y * shape.width, shape.width);
  }
}

/// A Gaussian blur of random width, as in SimCLR and MoCo v3.
class Blur final : public PixelTransform {
 public:
  struct Options {
    std::vector<double> sigma{0.1, 2.0};

    static constexpr auto fields() {
      return std::tuple{field("sigma", &Options::sigma, "range of the standard deviation",
                              unit("pixels"), in_range(0, 100))};
    }
    void validate(Problems& problems) const { require_pair("sigma", sigma, problems); }
  };

  explicit Blur(const Options& options) : options_(options) {}
  bool needs_colours() const override { return false; }
  void apply(EditedImage& image, const TransformDraws& draws) const override {
    gaussian_blur(image, draws.between(0, options_.sigma[0], options_.sigma[1]));
  }

 private:
  Options options_;
};

const Registration<PixelTransform, Blur> registered_blur{"blur", "Gaussian of random width"};

}  // namespace

void gaussian_blur(EditedImage& image, double sigma) {
  if (sigma == 0.0) return;
  const Box box = box_of(sigma);
  const ImageShape shape = image.shape;
  RowFilter rows(box, shape.width);
  uint8_t* other = image.second_image();
  for (int64_t channel = 0; channel < shape.channels; ++channel) {
    uint8_t* plane = image.plane(channel);
    for (int64_t y = 0; y < shape.height; ++y) rows.filter(plane + y * shape.width);
    uint8_t* room = other + channel * shape.pixels();
    filter_columns(box, shape, plane, room);
    filter_columns(box, shape, room, plane);
    filter_columns(box, shape, plane, room);
  }
  image.take_scratch();
}

}  // namespace shoal
