#include "runtime/data/crop.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "runtime/device/cpu_clones.h"

namespace shoal {
namespace {

constexpr int kFractionBits = 22;
constexpr int64_t kLanes = 32;  // bytes that are filtered at once

/// The inputs of each output along an axis: consecutive, counted from the first that any needs.
struct AxisFilter {
  int64_t begin = 0, needed = 0;  ///< the inputs that outputs need
  int64_t taps = 0;               ///< most inputs of an output
  std::vector<int64_t> first;     ///< one an output
  std::vector<int64_t> count;     ///< inputs of each
  std::vector<int32_t> weight;    ///< [outputs, taps], in units of 2^-22
};

/// Pillow's bilinear filter from `from` inputs to `to` outputs, of which those from `begin` on are
/// wanted, `wanted` of them: a triangle as wide as an output pixel where it shrinks.
AxisFilter bilinear(int64_t from, int64_t to, int64_t begin, int64_t wanted) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double support = std::max(scale, 1.0), per_support = 1.0 / support;
  AxisFilter filter;
  filter.taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  filter.weight.assign(static_cast<size_t>(wanted * filter.taps), 0);
  std::vector<double> share;
  for (int64_t i = 0; i < wanted; ++i) {
    const double centre = (static_cast<double>(begin + i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(centre - support + 0.5));
    const auto end = std::min<int64_t>(from, static_cast<int64_t>(centre + support + 0.5));
    share.clear();
    double sum = 0.0;
    for (int64_t x = first; x < end; ++x) {
      const double distance = std::abs((static_cast<double>(x) - centre + 0.5) * per_support);
      share.push_back(std::max(0.0, 1.0 - distance));
      sum += share.back();
    }
    for (size_t tap = 0; tap < share.size(); ++tap) {
      const double rounded = std::floor(share[tap] / sum * (1 << kFractionBits) + 0.5);
      filter.weight[static_cast<size_t>(i * filter.taps) + tap] = static_cast<int32_t>(rounded);
    }
    if (i == 0) filter.begin = first;
    filter.first.push_back(first - filter.begin);
    filter.count.push_back(end - first);
  }
  filter.needed = filter.first.back() + filter.count.back();
  return filter;
}

SHOAL_INLINE uint8_t rounded_byte(int32_t sum) {
  const int32_t whole = (sum + (1 << (kFractionBits - 1))) >> kFractionBits;
  return static_cast<uint8_t>(whole < 0 ? 0 : (whole > 255 ? 255 : whole));
}

/// The inputs of one output: lines of `length` bytes, one after the other, and a weight for each.
struct WeightedLines {
  const uint8_t* line;
  int64_t length;
  const int32_t* weight;
  int64_t count;
};

/// The weighted sums of `lanes` bytes, at most kLanes.
SHOAL_INLINE void add_up(const WeightedLines& in, int64_t lanes, uint8_t* out) {
  int32_t sum[kLanes] = {};
  for (int64_t k = 0; k < in.count; ++k) {
    const uint8_t* line = in.line + k * in.length;
    for (int64_t i = 0; i < lanes; ++i) sum[i] += in.weight[k] * line[i];
  }
  for (int64_t i = 0; i < lanes; ++i) out[i] = rounded_byte(sum[i]);
}

/// Lines of `length` bytes, [needed, length] -> [outputs, length].
SHOAL_CPU_CLONES void filter_lines(const AxisFilter& filter, int64_t length, const uint8_t* in,
                                   uint8_t* out) {
  const auto outputs = std::ssize(filter.first);
  const int64_t *first = filter.first.data(), *count = filter.count.data();
  for (int64_t i = 0; i < outputs; ++i, out += length) {
    WeightedLines lines{in + first[i] * length, length, filter.weight.data() + i * filter.taps,
                        count[i]};
    int64_t begin = 0;
    for (; begin + kLanes <= length; begin += kLanes, lines.line += kLanes) {
      add_up(lines, kLanes, out + begin);  // a constant, so that it becomes vector instructions
    }
    if (begin < length) add_up(lines, length - begin, out + begin);
  }
}

/// [2, half] -> [half, 2].
SHOAL_CPU_CLONES void interleave(const uint8_t* __restrict__ halves, int64_t half,
                                 uint8_t* __restrict__ pairs) {
  for (int64_t i = 0; i < half; ++i) {
    pairs[2 * i] = halves[i];
    pairs[2 * i + 1] = halves[half + i];
  }
}

/// [half, 2] -> [2, half].
SHOAL_CPU_CLONES void separate(const uint8_t* __restrict__ pairs, int64_t half,
                               uint8_t* __restrict__ halves) {
  for (int64_t i = 0; i < half; ++i) {
    halves[i] = pairs[2 * i];
    halves[half + i] = pairs[2 * i + 1];
  }
}

/// Some rows of one colour of an image.
struct Plane {
  const uint8_t* rows;
  int64_t stride;  ///< bytes from row to row
  int64_t height;
};

/// Rows resized along their length to `size` values each. kLanes rows at a time are transposed, by
/// halves, so that they are filtered as lines, and back.
std::vector<uint8_t> resized_rows(const Plane& plane, const AxisFilter& filter, int64_t size) {
  const auto tile_bytes = static_cast<size_t>(kLanes * std::max(filter.needed, size));
  std::vector<uint8_t> tile(tile_bytes), room(tile_bytes);
  std::vector<uint8_t> out(static_cast<size_t>(plane.height * size));
  for (int64_t y = 0; y < plane.height; y += kLanes) {
    const int64_t num_rows = std::min(kLanes, plane.height - y);
    for (int64_t row = 0; row < num_rows; ++row) {
      std::copy_n(plane.rows + (y + row) * plane.stride + filter.begin, filter.needed,
                  tile.data() + row * filter.needed);
    }
    for (int64_t step = 1; step < kLanes; step *= 2, tile.swap(room)) {
      interleave(tile.data(), filter.needed * kLanes / 2, room.data());
    }
    filter_lines(filter, kLanes, tile.data(), room.data());
    tile.swap(room);
    for (int64_t step = 1; step < kLanes; step *= 2, tile.swap(room)) {
      separate(tile.data(), size * kLanes / 2, room.data());
    }
    std::copy_n(tile.data(), num_rows * size, out.data() + y * size);
  }
  return out;
}

}  // namespace

std::vector<uint8_t> cropped(const std::vector<uint8_t>& pixel_CHW, ImageShape image,
                             const CropPlan& plan, int64_t size) {
  TORCH_CHECK(std::ssize(pixel_CHW) == image.bytes() && plan.top >= 0 && plan.left >= 0 &&
                  plan.height > 0 && plan.width > 0 && plan.top + plan.height <= image.height &&
                  plan.left + plan.width <= image.width && plan.square_top >= 0 &&
                  plan.square_left >= 0 && plan.square_top + size <= plan.resized_height &&
                  plan.square_left + size <= plan.resized_width,
              "the crop reaches beyond an image of ", image.height, " x ", image.width);
  const AxisFilter across = bilinear(plan.width, plan.resized_width, plan.square_left, size);
  const AxisFilter down = bilinear(plan.height, plan.resized_height, plan.square_top, size);
  std::vector<uint8_t> square_CHW(static_cast<size_t>(image.channels * size * size));
  for (int64_t channel = 0; channel < image.channels; ++channel) {
    const int64_t corner =
        (channel * image.height + plan.top + down.begin) * image.width + plan.left;
    const Plane plane{pixel_CHW.data() + corner, image.width, down.needed};
    filter_lines(down, size, resized_rows(plane, across, size).data(),
                 square_CHW.data() + channel * size * size);
  }
  return square_CHW;
}

}  // namespace shoal
