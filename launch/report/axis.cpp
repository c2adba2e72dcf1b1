#include "launch/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "runtime/base/text.h"

namespace shoal {
namespace {

/// The smallest round number (1, 2 or 5 times a power of ten) not below `step`.
double round_step(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/// Shortens an exponent: 2e-05 becomes 2e-5, 1e+16 becomes 1e16.
std::string short_exponent(std::string number) {
  for (const char* sign : {"e-0", "e+0"}) {
    const size_t at = number.find(sign);
    if (at != std::string::npos) number.erase(at + 2, 1);
  }
  std::erase(number, '+');
  return number;
}

/// Format of an axis's tick labels.
struct TickFormat {
  double unit = 1.0;  ///< values are divided by it
  std::string suffix;
  double step = 1.0;  ///< in units

  std::string text(double value) const {
    const double shown = value / unit;
    if (std::abs(shown) < step * 1e-6) return suffix.starts_with(' ') ? "0" + suffix : "0";
    if (step < 1e-4) {
      return short_exponent(fmt::format("{:.3g}", shown)) + suffix;
    }
    if (step >= 1 && std::abs(shown) >= 1000 && suffix.empty()) return grouped(shown);
    const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
    return fmt::format("{:.{}f}{}", shown, decimals, suffix);
  }
};

TickFormat format_for(double largest, Quantity quantity) {
  using Unit = std::pair<double, const char*>;  // size and suffix
  constexpr std::array kBinary{Unit{0x1p40, " TiB"}, Unit{0x1p30, " GiB"}, Unit{0x1p20, " MiB"},
                               Unit{0x1p10, " KiB"}};
  constexpr std::array kDecimal{Unit{1e12, "T"}, Unit{1e9, "G"}, Unit{1e6, "M"}, Unit{1e4, "k"}};
  if (quantity == Quantity::kShare) return {0.01, " %"};
  if (quantity == Quantity::kBytes) {
    for (const auto& [size, suffix] : kBinary) {
      if (largest >= size) return {size, suffix};
    }
    return {1.0, " B"};
  }
  for (const auto& [size, suffix] : kDecimal) {
    if (largest >= size) return {size == 1e4 ? 1e3 : size, suffix};
  }
  return {};
}

/// Tick label of a logarithmic axis.
std::string power_text(double value, Quantity quantity) {
  constexpr double kLeast = 0.999e-3, kMost = 1.001e3;  // that are written without an exponent
  const TickFormat format = format_for(value, quantity);
  const double shown = value / format.unit;
  if (shown > kMost) return short_exponent(fmt::format("{:.3g}", value));
  if (shown < kLeast) return short_exponent(fmt::format("{:.3g}", shown)) + format.suffix;
  return (shown > 999 && format.suffix.empty() ? grouped(shown) : fmt::format("{:.4g}", shown)) +
         format.suffix;
}

}  // namespace

Axis::Axis(double low, double high, Quantity quantity, bool logarithmic)
    : low_(low), high_(high), quantity_(quantity), logarithmic_(logarithmic) {
  if (low_ < high_) return;
  const double around = low_ == 0.0 ? 1.0 : std::abs(low_) * 0.1;
  high_ = low_ + around;
  // Metrics that are never negative, such as shares and counts, keep a range from 0.
  low_ = low_ >= 0.0 ? std::max(low_ - around, 0.0) : low_ - around;
}

double Axis::place(double value) const {
  const double place = logarithmic_
                           ? std::log(std::max(value, low_) / low_) / std::log(high_ / low_)
                           : (value - low_) / (high_ - low_);
  return std::clamp(place, 0.0, 1.0);
}

std::vector<ScaleTick> Axis::powers() const {
  constexpr double kMostGaps = 5;
  const double base = quantity_ == Quantity::kBytes ? 2 : 10;
  const auto power_of = [base](double value) { return std::log2(value) / std::log2(base); };
  const double low = power_of(low_), high = power_of(high_) + 1e-9;
  const double stride = std::max(1.0, round_step((high - low) / kMostGaps));
  std::vector<ScaleTick> ticks;
  for (double power = stride * std::ceil(low / stride - 1e-9); power <= high; power += stride) {
    const double value = std::pow(base, power);
    ticks.push_back({place(value), power_text(value, quantity_)});
  }
  return ticks;
}

std::vector<ScaleTick> Axis::ticks(int wanted) const {
  if (logarithmic_) {
    std::vector<ScaleTick> result = powers();
    if (result.size() >= 2) return result;
  }
  TickFormat format = format_for(std::max(std::abs(low_), std::abs(high_)), quantity_);
  format.step = round_step((high_ - low_) / format.unit / std::max(1, wanted));
  std::vector<ScaleTick> ticks;
  const double first = std::ceil(low_ / format.unit / format.step - 1e-9);
  for (int i = 0; i <= 4 * std::max(1, wanted); ++i) {
    const double value = (first + i) * format.step * format.unit;
    if (value > high_ + 1e-9 * (high_ - low_)) break;
    ticks.push_back({place(value), format.text(value)});
  }
  if (ticks.empty()) ticks.push_back({place(high_), format.text(high_)});
  return ticks;
}

}  // namespace shoal
