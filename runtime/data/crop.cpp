#include "runtime/data/crop.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace shoal {
namespace {

constexpr int kFractionBits = 22;

/// How outputs of one axis are made: each from `taps` inputs from `first` on.
struct AxisFilter {
  int64_t taps = 0;             ///< most inputs of an output
  std::vector<int64_t> first;   ///< one an output
  std::vector<int64_t> count;   ///< inputs of each
  std::vector<int32_t> weight;  ///< [outputs, taps], in units of 2^-22
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
    filter.first.push_back(first);
    filter.count.push_back(end - first);
  }
  return filter;
}

uint8_t rounded_byte(int32_t sum) {
  return static_cast<uint8_t>(
      std::clamp((sum + (1 << (kFractionBits - 1))) >> kFractionBits, 0, 255));
}

/// Some rows of one colour of an image.
struct Plane {
  const uint8_t* rows;
  int64_t stride;  ///< bytes from row to row
  int64_t height;
};

/// Rows resized along their length to `size` values each.
std::vector<uint8_t> resized_rows(const Plane& plane, const AxisFilter& filter, int64_t size) {
  std::vector<uint8_t> out(static_cast<size_t>(plane.height * size));
  for (int64_t y = 0; y < plane.height; ++y) {
    const uint8_t* row = plane.rows + y * plane.stride;
    for (int64_t x = 0; x < size; ++x) {
      const auto i = static_cast<size_t>(x);
      const int32_t* weight = filter.weight.data() + x * filter.taps;
      const uint8_t* pixel = row + filter.first[i];
      int32_t sum = 0;
      for (int64_t tap = 0; tap < filter.count[i]; ++tap) sum += weight[tap] * pixel[tap];
      out[static_cast<size_t>(y * size + x)] = rounded_byte(sum);
    }
  }
  return out;
}

/// Columns of `row`, which begin at row `first_row` of the rectangle, resized into `out`.
void resize_columns(const std::vector<uint8_t>& row, int64_t first_row, const AxisFilter& filter,
                    int64_t size, uint8_t* out) {
  std::vector<int32_t> sum(static_cast<size_t>(size));
  for (int64_t y = 0; y < size; ++y) {
    const auto i = static_cast<size_t>(y);
    std::fill(sum.begin(), sum.end(), 0);
    for (int64_t tap = 0; tap < filter.count[i]; ++tap) {
      const int32_t weight = filter.weight[static_cast<size_t>(y * filter.taps + tap)];
      const uint8_t* from = row.data() + (filter.first[i] + tap - first_row) * size;
      for (int64_t x = 0; x < size; ++x) sum[static_cast<size_t>(x)] += weight * from[x];
    }
    for (int64_t x = 0; x < size; ++x)
      out[y * size + x] = rounded_byte(sum[static_cast<size_t>(x)]);
  }
}

}  // namespace

std::vector<uint8_t> cropped(const std::vector<uint8_t>& pixel_CHW, ImageShape image,
                             const CropPlan& plan, int64_t size) {
  TORCH_CHECK(static_cast<int64_t>(pixel_CHW.size()) == image.bytes() && plan.top >= 0 &&
                  plan.left >= 0 && plan.height > 0 && plan.width > 0 &&
                  plan.top + plan.height <= image.height && plan.left + plan.width <= image.width &&
                  plan.square_top >= 0 && plan.square_left >= 0 &&
                  plan.square_top + size <= plan.resized_height &&
                  plan.square_left + size <= plan.resized_width,
              "the crop reaches beyond an image of ", image.height, " x ", image.width);
  const AxisFilter across = bilinear(plan.width, plan.resized_width, plan.square_left, size);
  const AxisFilter down = bilinear(plan.height, plan.resized_height, plan.square_top, size);
  const int64_t first_row = down.first.front();
  const int64_t num_rows = down.first.back() + down.count.back() - first_row;
  std::vector<uint8_t> square_CHW(static_cast<size_t>(image.channels * size * size));
  for (int64_t channel = 0; channel < image.channels; ++channel) {
    const int64_t corner =
        (channel * image.height + plan.top + first_row) * image.width + plan.left;
    const Plane plane{pixel_CHW.data() + corner, image.width, num_rows};
    resize_columns(resized_rows(plane, across, size), first_row, down, size,
                   square_CHW.data() + channel * size * size);
  }
  return square_CHW;
}

}  // namespace shoal
