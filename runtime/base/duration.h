#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shoal {

/// Units of a length of training, `train.duration: 10ep` in a recipe. Values are bits: the units
/// that a recipe key accepts are or-ed into an `unsigned`.
enum class DurationUnit : unsigned {
  kStep = 1,      ///< optimizer steps: `1000step`
  kEpoch = 2,     ///< passes over the training data: `10ep`
  kToken = 4,     ///< training tokens: `2Btok` is 2 * 10^9
  kSecond = 8,    ///< time: `30s`, `10min`, `3h50min`, `2d`
  kPercent = 16,  ///< of the whole run: `5%`
};

constexpr unsigned kAllDurationUnits = 31;

/// The numbers that convert a duration to optimizer steps.
struct StepScale {
  int64_t samples_per_epoch = 0;
  int64_t samples_per_step = 0;   ///< over all ranks: the recipe's `train.batch`
  int64_t tokens_per_sample = 0;  ///< 0: the data has no tokens
  int64_t total_steps = 0;        ///< of the whole run, for percentages; 0: not known yet
};

/// An exact length of training: count / scale units; scale is a power of ten. 1.5 is 15 / 10.
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

/// Returns the optimizer steps until `duration` is reached, rounded up: N epochs are ceil(N *
/// samples_per_epoch / samples_per_step). Exact integer arithmetic. Throws ConfigError if
/// `duration` is a time, converts to more than 2^53 steps, or needs a number that `scale` lacks.
int64_t to_steps(const Duration& duration, const StepScale& scale);

/// to_steps; if that throws ConfigError, puts `key`, the duration's recipe key, before the message.
int64_t steps_of(const std::string& key, const Duration& duration, const StepScale& scale);

/// Parses a recipe's text: `1000step`, `1.5ep`, `2Btok`, `3h50min`, `5%`. K, M, B, T multiply steps
/// and tokens by 10^3, 10^6, 10^9, 10^12. Returns nothing if the text is not a duration.
std::optional<Duration> parse_duration(std::string_view text);

/// Returns why `text` is not an accepted duration and how to write one, as part of an error
/// message: "needs a unit: 10step, 10ep". Returns "" if `text` does not begin with a number.
/// `units`: the accepted units, bits of DurationUnit.
std::string explain_duration(std::string_view text, unsigned units);

/// Canonical text; parse_duration(to_text(d)) == d.
std::string to_text(const Duration& duration);

/// Returns text such as "step, ep, tok, s, min, h, d or %" for the bits in `units`, at least one.
std::string describe_units(unsigned units);

}  // namespace shoal
