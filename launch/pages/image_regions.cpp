#include "launch/pages/image_regions.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

// N patches of an image  U units
namespace shoal {
namespace {

/// An image as the mean of its channels, in [0, 1].
class GreyImage {
 public:
  explicit GreyImage(const Picture& image) : width_(image.width), height_(image.height) {
    for (const Rgb& pixel : image.pixels) {
      value_.push_back((pixel[0] + pixel[1] + pixel[2]) / (3 * 255.0));
    }
  }
  double at(int64_t y, int64_t x) const { return value_[static_cast<size_t>(y * width_ + x)]; }
  double gradient_length(int64_t y, int64_t x) const {
    const int64_t up = std::max<int64_t>(y - 1, 0), down = std::min(y + 1, height_ - 1);
    const int64_t left = std::max<int64_t>(x - 1, 0), right = std::min(x + 1, width_ - 1);
    return std::hypot(slope(at(down, x) - at(up, x), down - up),
                      slope(at(y, right) - at(y, left), right - left));
  }

 private:
  static double slope(double rise, int64_t run) {
    return run == 0 ? 0.0 : rise / static_cast<double>(run);
  }
  int64_t width_, height_;
  std::vector<double> value_;
};

/// Features, except `vertical`, of the square with top left corner (top, left).
RegionFeatures features_of(const GreyImage& image, int64_t top, int64_t left, int64_t side) {
  const auto pixels = static_cast<double>(side * side);
  double sum = 0.0, lengths = 0.0, squares = 0.0;
  for (int64_t y = top; y < top + side; ++y) {
    for (int64_t x = left; x < left + side; ++x) {
      sum += image.at(y, x);
      lengths += image.gradient_length(y, x);
    }
  }
  const double mean = sum / pixels;
  for (int64_t y = top; y < top + side; ++y) {
    for (int64_t x = left; x < left + side; ++x) {
      squares += (image.at(y, x) - mean) * (image.at(y, x) - mean);
    }
  }
  return {mean, std::sqrt(squares / pixels), lengths / pixels, 0.0};
}

}  // namespace

std::vector<RegionFeatures> region_features(const Picture& image, int64_t rows, int64_t columns) {
  const int64_t side =
      rows < 1 || columns < 1 ? 0 : std::min(image.height / rows, image.width / columns);
  if (side < 1) throw std::logic_error("patches smaller than a pixel");
  const GreyImage grey(image);
  std::vector<RegionFeatures> features;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      features.push_back(features_of(grey, row * side, column * side, side));
      features.back()[3] = (static_cast<double>(row) + 0.5) * static_cast<double>(side) /
                           static_cast<double>(image.height);
    }
  }
  return features;
}

double RegionTable::share(const Unit& unit) const {
  return patches == 0 ? 0.0 : static_cast<double>(unit.patches) / static_cast<double>(patches);
}

RegionCounter::RegionCounter(int64_t num_units) : unit_(static_cast<size_t>(num_units + 1)) {}

void RegionCounter::Moments::add(const RegionFeatures& features) {
  ++count;
  for (size_t i = 0; i < features.size(); ++i) {
    const double from_old = features[i] - mean[i];
    mean[i] += from_old / static_cast<double>(count);
    square[i] += from_old * (features[i] - mean[i]);
  }
}

void RegionCounter::add(const std::vector<int64_t>& unit_N,
                        const std::vector<RegionFeatures>& features_N) {
  if (unit_N.size() != features_N.size()) throw std::logic_error("a patch without features");
  for (size_t n = 0; n < unit_N.size(); ++n) {
    all_.add(features_N[n]);
    const bool has_unit = unit_N[n] >= 0;
    (has_unit ? unit_.at(static_cast<size_t>(unit_N[n])) : unit_.back()).add(features_N[n]);
  }
}

RegionTable RegionCounter::table() const {
  RegionTable table{all_.count, all_.mean, {}, {}};
  for (size_t i = 0; i < table.deviation.size(); ++i) {
    if (all_.count > 0) {
      table.deviation[i] = std::sqrt(all_.square[i] / static_cast<double>(all_.count));
    }
  }
  for (const Moments& unit : unit_) {
    RegionTable::Unit& own = table.units.emplace_back(RegionTable::Unit{unit.count, unit.mean, {}});
    for (size_t i = 0; i < own.difference.size(); ++i) {
      if (unit.count == 0 || table.deviation[i] == 0) continue;
      own.difference[i] = (unit.mean[i] - table.mean[i]) / table.deviation[i];
    }
  }
  return table;
}

}  // namespace shoal
