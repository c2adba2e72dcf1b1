#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shoal {

/// Units of a length of training. Values are bits, so that a field can accept several.
enum class DurationUnit : unsigned {
  kStep = 1,      ///< optimizer steps: `1000step`
  kEpoch = 2,     ///< passes over the training data: `10ep`
  kToken = 4,     ///< `2Btok`
  kSecond = 8,    ///< `30s`, `10min`, `3h50min`, `2d`
  kPercent = 16,  ///< of the whole run: `5%`
};

constexpr unsigned kAllDurationUnits = 31;

/// The numbers that convert a duration to optimizer steps.
struct StepScale {
  int64_t samples_per_epoch = 0;
  int64_t samples_per_step = 0;   ///< the recipe's batch
  int64_t tokens_per_sample = 0;  ///< 0: the data has no tokens
  int64_t total_steps = 0;        ///< of the run, for percentages; 0: not known yet
};

/// A length of training with its unit, exact: `count / scale` units, scale a power of ten.
struct Duration {
  DurationUnit unit = DurationUnit::kStep;
  int64_t count = 0;
  int64_t scale = 1;

  static Duration steps(int64_t count) { return {DurationUnit::kStep, count, 1}; }
  static Duration epochs(int64_t count) { return {DurationUnit::kEpoch, count, 1}; }
  static Duration seconds(int64_t count) { return {DurationUnit::kSecond, count, 1}; }
  static Duration percent(int64_t count) { return {DurationUnit::kPercent, count, 1}; }

  /// The number of units: 1.5 for `1.5ep`, 90 for `1min30s`.
  double value() const { return static_cast<double>(count) / static_cast<double>(scale); }
  bool is_time() const { return unit == DurationUnit::kSecond; }
  bool operator==(const Duration&) const = default;
};

/// Optimizer steps until `duration` is reached, rounded up: `Nep` is ceil(N * samples_per_epoch /
/// samples_per_step). Exact integer arithmetic. Throws ConfigError for a time, which has no step
/// count, and where `scale` lacks a number it needs.
int64_t to_steps(const Duration& duration, const StepScale& scale);

/// Parses `1000step`, `1.5ep`, `2Btok`, `3h50min`, `5%`; K, M, B, T multiply steps and tokens.
/// Returns nothing if the text is not a duration.
std::optional<Duration> parse_duration(std::string_view text);

/// Why a text that begins with a number is not a duration, and how to write one: "needs a unit:
/// 10step, 10ep"; "" if it does not begin with a number. `units`: the accepted ones.
std::string explain_duration(std::string_view text, unsigned units);

/// Canonical text; parse_duration(to_text(d)) == d.
std::string to_text(const Duration& duration);

/// Text such as "step, ep, tok, s, min, h, d or %", for the units in `units`, at least one.
std::string describe_units(unsigned units);

}  // namespace shoal
