#include "runtime/data/transforms/affine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string>

#include "runtime/device/cpu_clones.h"

namespace shoal {
namespace {

/// Python's round(number, 15).
double rounded_to_15_digits(double number) {
  const std::string digits = fmt::format("{:.15f}", number);
  double rounded = 0.0;
  std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  return rounded;
}

/// A row of results and the map that makes it.
struct RowOfMap {
  AffineMap map;
  ImageShape image;
  int64_t y = 0;
};

/// Results of a row that lie inside the image, which are neighbours; `begin` = `end`: none.
struct Inside {
  int64_t begin = 0, end = 0;
};

/// Most taps of a filter along an axis.
constexpr size_t kMostTaps = 4;

/// How a row of results is made of pixels, [width] of each.
struct RowTaps {
  explicit RowTaps(int64_t width) : x(static_cast<size_t>(width)), y(x.size()), pixel(x.size()) {
    column.fill(pixel);
    row.fill(pixel);
  }

  Inside inside;
  std::vector<double> x, y;    ///< places, then what they exceed the middle of a pixel by, [0, 1)
  std::vector<int32_t> pixel;  ///< whose middle that is
  std::array<std::vector<int32_t>, kMostTaps> column, row;  ///< of each tap; rows times width
};

SHOAL_CPU_CLONES void find_places(const RowOfMap& row, double* x, double* y, Inside* inside) {
  const AffineMap map = row.map;
  const int64_t size = row.image.width;
  const auto width = static_cast<double>(size), height = static_cast<double>(row.image.height);
  const double y_in = static_cast<double>(row.y) + 0.5;
  int64_t begin = size, end = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double x_in = static_cast<double>(static_cast<int32_t>(i)) + 0.5;
    const double place_x = map.a * x_in + map.b * y_in + map.c;
    const double place_y = map.d * x_in + map.e * y_in + map.f;
    x[i] = place_x;
    y[i] = place_y;
    const bool is_inside =
        (place_x >= 0.0) & (place_x < width) & (place_y >= 0.0) & (place_y < height);
    const int64_t first = is_inside ? i : size, next = is_inside ? i + 1 : 0;
    begin = first < begin ? first : begin;
    end = next > end ? next : end;
  }
  *inside = {begin < end ? begin : end, end};
}

/// Pixels along one axis: those from `first` before the place's pixel on, within [0, size).
struct AxisTaps {
  int32_t first, size, stride;
};

/// Rounds a place down to the middle of a pixel and leaves the rest.
SHOAL_CPU_CLONES void round_down(double* place, int32_t* pixel, Inside inside) {
  for (int64_t i = inside.begin; i < inside.end; ++i) {
    const double from_middle = place[i] - 0.5;  // -0.5 or more
    const int32_t whole = static_cast<int32_t>(from_middle) - (from_middle < 0.0 ? 1 : 0);
    pixel[i] = whole;
    place[i] = from_middle - static_cast<double>(whole);
  }
}

SHOAL_CPU_CLONES void place_tap(const int32_t* pixel, const AxisTaps& axis, int32_t* tap,
                                Inside inside) {
  const int32_t last = axis.size - 1, first = axis.first, stride = axis.stride;
  for (int64_t i = inside.begin; i < inside.end; ++i) {
    const int32_t at = pixel[i] + first;
    const int32_t above = at < 0 ? 0 : at;
    tap[i] = (above > last ? last : above) * stride;
  }
}

/// Two pixels along an axis.
struct Bilinear {
  static constexpr size_t kTaps = 2;
  static SHOAL_INLINE double mix(const double* v, double part) {
    return v[0] + (v[1] - v[0]) * part;
  }
};

/// Four pixels along an axis, by Pillow's cubic.
struct Bicubic {
  static constexpr size_t kTaps = 4;
  static SHOAL_INLINE double mix(const double* v, double part) {
    const double linear = -v[0] + v[2];
    const double square = 2.0 * (v[0] - v[1]) + v[2] - v[3];
    const double cube = -v[0] + v[1] - v[2] + v[3];
    return v[1] + part * (linear + part * (square + part * cube));
  }
};

/// What a row of results is mixed of, and where it goes.
struct RowToMix {
  const uint32_t* pixel;  ///< of the image
  const int32_t *column[kMostTaps], *row[kMostTaps];
  const double *x, *y;
  Inside inside;
  uint8_t* out[3];  ///< red, green, blue
};

template <class Filter>
SHOAL_INLINE uint8_t mixed_byte(const uint32_t (&pixel)[Filter::kTaps][Filter::kTaps], int shift,
                                double x, double y) {
  double rows[Filter::kTaps];
  for (size_t ky = 0; ky < Filter::kTaps; ++ky) {
    double bytes[Filter::kTaps];
    for (size_t kx = 0; kx < Filter::kTaps; ++kx) {
      bytes[kx] = static_cast<int32_t>(pixel[ky][kx] >> shift & 255u);
    }
    rows[ky] = Filter::mix(bytes, x);
  }
  const double value = Filter::mix(rows, y);
  const double above = value < 0.0 ? 0.0 : value;
  return static_cast<uint8_t>(static_cast<int32_t>(above > 255.0 ? 255.0 : above));
}

template <class Filter>
SHOAL_INLINE void mix_row(const RowToMix& in) {
  constexpr size_t kTaps = Filter::kTaps;
  const RowToMix mix = in;  // whose pointers no store can change
#pragma GCC ivdep
  for (int64_t i = mix.inside.begin; i < mix.inside.end; ++i) {
    uint32_t pixel[kTaps][kTaps];
    for (size_t ky = 0; ky < kTaps; ++ky) {
      for (size_t kx = 0; kx < kTaps; ++kx) {
        pixel[ky][kx] = mix.pixel[mix.row[ky][i] + mix.column[kx][i]];
      }
    }
    const double x = mix.x[i], y = mix.y[i];
    mix.out[0][i] = mixed_byte<Filter>(pixel, 0, x, y);
    mix.out[1][i] = mixed_byte<Filter>(pixel, 8, x, y);
    mix.out[2][i] = mixed_byte<Filter>(pixel, 16, x, y);
  }
}

SHOAL_CPU_CLONES void mix_bilinear(const RowToMix& in) { mix_row<Bilinear>(in); }
SHOAL_CPU_CLONES void mix_bicubic(const RowToMix& in) { mix_row<Bicubic>(in); }

/// Red, green and blue of each pixel in one word, from the lowest byte: one read fetches all three.
SHOAL_CPU_CLONES void pack_pixels(const uint8_t* rgb, int64_t pixels, uint32_t* packed) {
  for (int64_t i = 0; i < pixels; ++i) {
    packed[i] =
        uint32_t{rgb[i]} | uint32_t{rgb[pixels + i]} << 8 | uint32_t{rgb[2 * pixels + i]} << 16;
  }
}

/// An image to read and one to write.
class Warping {
 public:
  Warping(EditedImage& image, const AffineMap& map)
      : map_(map), shape_(image.shape), packed_(static_cast<size_t>(shape_.pixels())) {
    pack_pixels(image.plane(0), shape_.pixels(), packed_.data());
    image.pixel_CHW.assign(image.pixel_CHW.size(), kWarpFill);
    out_ = image.plane(0);
  }

  /// `mix`: for a filter of `num_taps`.
  void mix_taps(size_t num_taps, void (*mix)(const RowToMix&));
  /// For maps that leave the axes as they are.
  void take_scaled();
  /// For any other.
  void take_nearest();

 private:
  /// Places the taps evenly around a position's pixel; border pixels stand in for those outside.
  static void place_taps(RowTaps& taps, size_t num_taps, const ImageShape& shape);
  uint8_t* out(int64_t channel, int64_t y) const {
    return out_ + (channel * shape_.height + y) * shape_.width;
  }

  AffineMap map_;
  ImageShape shape_;
  std::vector<uint32_t> packed_;
  uint8_t* out_;
};

void Warping::place_taps(RowTaps& taps, size_t num_taps, const ImageShape& shape) {
  const auto height = static_cast<int32_t>(shape.height), width = static_cast<int32_t>(shape.width);
  const auto first = 1 - static_cast<int32_t>(num_taps / 2);
  const auto place = [&](std::vector<double>& places, AxisTaps axis, auto& tap) {
    round_down(places.data(), taps.pixel.data(), taps.inside);
    for (size_t k = 0; k < num_taps; ++k, ++axis.first) {
      place_tap(taps.pixel.data(), axis, tap[k].data(), taps.inside);
    }
  };
  place(taps.x, {first, width, 1}, taps.column);
  place(taps.y, {first, height, width}, taps.row);
}

void Warping::mix_taps(size_t num_taps, void (*mix)(const RowToMix&)) {
  RowTaps taps(shape_.width);
  for (int64_t y = 0; y < shape_.height; ++y) {
    find_places({map_, shape_, y}, taps.x.data(), taps.y.data(), &taps.inside);
    place_taps(taps, num_taps, shape_);
    RowToMix row{packed_.data(),
                 {},
                 {},
                 taps.x.data(),
                 taps.y.data(),
                 taps.inside,
                 {out(0, y), out(1, y), out(2, y)}};
    for (size_t k = 0; k < num_taps; ++k) {
      row.column[k] = taps.column[k].data();
      row.row[k] = taps.row[k].data();
    }
    mix(row);
  }
}

/// The first pixel of a row of results and the way to the next pixel and row, in units of 2^-16.
struct FixedSteps {
  int32_t x, y, across_x, across_y, down_x, down_y;
};

/// In units of 2^-16, as Pillow rounds.
int32_t fixed_of(double number) { return static_cast<int32_t>(std::floor(number * 65536.0 + 0.5)); }

/// Offsets of the pixels that a row of results takes.
SHOAL_CPU_CLONES void find_nearest(const FixedSteps& steps, ImageShape image, int32_t* offset,
                                   Inside* inside) {
  const FixedSteps at = steps;
  const auto width = static_cast<int32_t>(image.width), height = static_cast<int32_t>(image.height);
  int32_t begin = width, end = 0;
  for (int32_t i = 0; i < width; ++i) {
    const int32_t x = (at.x + i * at.across_x) >> 16, y = (at.y + i * at.across_y) >> 16;
    const bool is_inside = (x >= 0) & (x < width) & (y >= 0) & (y < height);
    offset[i] = y * width + x;
    const int32_t first = is_inside ? i : width, next = is_inside ? i + 1 : 0;
    begin = first < begin ? first : begin;
    end = next > end ? next : end;
  }
  *inside = {begin < end ? begin : end, end};
}

/// Columns or rows of a map that keeps the axes; -1: none. Places are sums of steps, as in Pillow.
std::vector<int32_t> scaled_axis(double first, double step, int64_t count, int64_t size) {
  std::vector<int32_t> pixels;
  double place = first + step * 0.5;
  for (int64_t i = 0; i < count; ++i, place += step) {
    const bool is_inside = place >= 0.0 && place < static_cast<double>(size);
    pixels.push_back(is_inside ? static_cast<int32_t>(place) : -1);
  }
  return pixels;
}

SHOAL_CPU_CLONES void take_pixels(const RowToMix& in) {
  const RowToMix row = in;
#pragma GCC ivdep
  for (int64_t i = row.inside.begin; i < row.inside.end; ++i) {
    const uint32_t pixel = row.pixel[row.column[0][i]];
    row.out[0][i] = static_cast<uint8_t>(pixel);
    row.out[1][i] = static_cast<uint8_t>(pixel >> 8);
    row.out[2][i] = static_cast<uint8_t>(pixel >> 16);
  }
}

void Warping::take_nearest() {
  std::vector<int32_t> offset(static_cast<size_t>(shape_.width));
  RowToMix row{packed_.data(), {offset.data()}, {}, nullptr, nullptr, {}, {}};
  FixedSteps steps{fixed_of(map_.c + map_.a * 0.5 + map_.b * 0.5),
                   fixed_of(map_.f + map_.d * 0.5 + map_.e * 0.5),
                   fixed_of(map_.a),
                   fixed_of(map_.d),
                   fixed_of(map_.b),
                   fixed_of(map_.e)};
  for (int64_t y = 0; y < shape_.height; ++y) {
    find_nearest(steps, shape_, offset.data(), &row.inside);
    steps.x += steps.down_x;
    steps.y += steps.down_y;
    for (int64_t channel = 0; channel < 3; ++channel) row.out[channel] = out(channel, y);
    take_pixels(row);
  }
}

void Warping::take_scaled() {
  const std::vector<int32_t> columns = scaled_axis(map_.c, map_.a, shape_.width, shape_.width);
  const std::vector<int32_t> rows = scaled_axis(map_.f, map_.e, shape_.height, shape_.height);
  const auto is_inside = [](int32_t pixel) { return pixel >= 0; };
  const auto first = std::ranges::find_if(columns, is_inside);
  const auto last = std::find_if_not(first, columns.end(), is_inside);
  const Inside inside{first - columns.begin(), last - columns.begin()};
  for (int64_t y = 0; y < shape_.height; ++y) {
    const int64_t from = rows[static_cast<size_t>(y)];
    if (from < 0) continue;
    take_pixels({packed_.data() + from * shape_.width,
                 {columns.data()},
                 {},
                 nullptr,
                 nullptr,
                 inside,
                 {out(0, y), out(1, y), out(2, y)}});
  }
}

}  // namespace

AffineMap rotation(double degrees, ImageShape image) {
  const double turned = std::fmod(degrees, 360.0);
  // Pillow takes the angle in [0, 360).
  const double angle = -((turned < 0.0 ? turned + 360.0 : turned) * (M_PI / 180.0));
  const double cosine = rounded_to_15_digits(std::cos(angle));
  const double sine = rounded_to_15_digits(std::sin(angle));
  const double x = static_cast<double>(image.width) / 2.0;
  const double y = static_cast<double>(image.height) / 2.0;
  AffineMap map{.a = cosine, .b = sine, .d = rounded_to_15_digits(-std::sin(angle)), .e = cosine};
  map.c = map.a * -x + map.b * -y + 0.0 + x;
  map.f = map.d * -x + map.e * -y + 0.0 + y;
  return map;
}

void warp(EditedImage& image, const AffineMap& map, Interpolation interpolation) {
  Warping warping(image, map);
  switch (interpolation) {
    case Interpolation::kNearest:
      return map.b == 0.0 && map.d == 0.0 ? warping.take_scaled() : warping.take_nearest();
    case Interpolation::kBilinear:
      return warping.mix_taps(Bilinear::kTaps, mix_bilinear);
    case Interpolation::kBicubic:
      return warping.mix_taps(Bicubic::kTaps, mix_bicubic);
    case Interpolation::kRandom:
      throw std::logic_error("a warp's interpolation has to be drawn first");
  }
}

}  // namespace shoal
