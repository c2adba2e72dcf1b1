#include "runtime/base/duration.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

using Wide = __int128;

// Counts stay exact as doubles, and their products with batch sizes within 128 bits.
constexpr int64_t kMaxCount = int64_t{1} << 53;
constexpr int64_t kMaxScale = 1'000'000;

struct Decimal {
  Wide digits = 0;
  int64_t scale = 1;
};

struct TimeUnit {
  std::string_view name;
  int64_t seconds;
};
constexpr std::array kTimeUnits{TimeUnit{"d", 86400}, TimeUnit{"h", 3600}, TimeUnit{"min", 60},
                                TimeUnit{"s", 1}};

/// Letters for the powers of 1000, from the first.
constexpr std::string_view kMultipliers = "KMBT";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Takes a decimal number off `text`; nothing without one, or if it is too long or zero-padded.
std::optional<Decimal> take_decimal(std::string_view& text) {
  Decimal number;
  std::size_t at = 0;
  while (at < text.size() && is_digit(text[at])) {
    number.digits = number.digits * 10 + (text[at++] - '0');
    if (number.digits > kMaxCount) return std::nullopt;
  }
  if (at == 0 || (at > 1 && text[0] == '0')) return std::nullopt;
  if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
    for (++at; at < text.size() && is_digit(text[at]); ++at) {
      number.digits = number.digits * 10 + (text[at] - '0');
      number.scale *= 10;
      if (number.scale > kMaxScale || number.digits > kMaxCount) return std::nullopt;
    }
  }
  text.remove_prefix(at);
  return number;
}

/// The duration of `digits / scale` units in lowest decimal terms; nothing if out of range.
std::optional<Duration> reduced(DurationUnit unit, Wide digits, int64_t scale) {
  while (scale > 1 && digits % 10 == 0) {
    digits /= 10;
    scale /= 10;
  }
  if (digits > kMaxCount) return std::nullopt;
  return Duration{unit, static_cast<int64_t>(digits), scale};
}

/// `3h50min`: whole numbers but for the last, units from large to small.
std::optional<Duration> parse_time(std::string_view text) {
  Wide digits = 0;
  int64_t scale = 1;
  std::size_t next_unit = 0;
  while (!text.empty()) {
    const std::optional<Decimal> number = take_decimal(text);
    if (!number || scale != 1) return std::nullopt;
    std::size_t length = 0;
    while (length < text.size() && std::isalpha(static_cast<unsigned char>(text[length]))) ++length;
    const std::string_view name = text.substr(0, length);
    while (next_unit < kTimeUnits.size() && kTimeUnits[next_unit].name != name) ++next_unit;
    if (next_unit == kTimeUnits.size()) return std::nullopt;
    digits = digits * number->scale + number->digits * kTimeUnits[next_unit++].seconds;
    scale = number->scale;
    if (digits > Wide{kMaxCount} * scale) return std::nullopt;
    text.remove_prefix(length);
  }
  return reduced(DurationUnit::kSecond, digits, scale);
}

std::optional<Duration> parse_count(std::string_view text) {
  const std::optional<Decimal> number = take_decimal(text);
  if (!number) return std::nullopt;
  if (text == "%") return reduced(DurationUnit::kPercent, number->digits, number->scale);
  if (text == "ep") return reduced(DurationUnit::kEpoch, number->digits, number->scale);
  Wide digits = number->digits;
  const std::size_t power = text.empty() ? text.npos : kMultipliers.find(text[0]);
  if (power != text.npos) {
    for (std::size_t i = 0; i <= power; ++i) digits *= 1000;
    text.remove_prefix(1);
  }
  if (text != "step" && text != "tok") return std::nullopt;
  if (digits % number->scale != 0) return std::nullopt;  // half a step
  return reduced(text == "step" ? DurationUnit::kStep : DurationUnit::kToken,
                 digits / number->scale, 1);
}

/// The names of the units in `units`, in the order that messages list them.
std::vector<std::string> unit_names(unsigned units) {
  constexpr std::array kNames{
      std::pair{DurationUnit::kStep, "step"},  std::pair{DurationUnit::kEpoch, "ep"},
      std::pair{DurationUnit::kToken, "tok"},  std::pair{DurationUnit::kSecond, "s"},
      std::pair{DurationUnit::kSecond, "min"}, std::pair{DurationUnit::kSecond, "h"},
      std::pair{DurationUnit::kSecond, "d"},   std::pair{DurationUnit::kPercent, "%"}};
  std::vector<std::string> names;
  for (const auto& [unit, name] : kNames) {
    if ((units & static_cast<unsigned>(unit)) != 0) names.emplace_back(name);
  }
  return names;
}

/// Length of the number, exponent included, at the start of a text.
std::size_t number_length(std::string_view text) {
  const auto skip_digits = [text](std::size_t at) {
    while (at < text.size() && is_digit(text[at])) ++at;
    return at;
  };
  std::size_t end = skip_digits(0);
  if (end > 0 && end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
    end = skip_digits(end + 1);
  }
  const bool has_exponent = end > 0 && end < text.size() && (text[end] == 'e' || text[end] == 'E');
  if (!has_exponent) return end;
  const bool has_sign = end + 1 < text.size() && (text[end + 1] == '-' || text[end + 1] == '+');
  const std::size_t exponent = end + (has_sign ? 2 : 1);
  const std::size_t last = skip_digits(exponent);
  return last > exponent ? last : end;
}

/// Whether a text is a duration in one of these units.
bool is_accepted(const std::string& text, unsigned units) {
  const std::optional<Duration> duration = parse_duration(text);
  return duration && (static_cast<unsigned>(duration->unit) & units) != 0;
}

std::string decimal_text(int64_t count, int64_t scale) {
  std::string text = std::to_string(count / scale);
  if (scale == 1) return text;
  std::string fraction = std::to_string(count % scale + scale);
  return text + "." + fraction.substr(1);
}

/// A number below 1 is a share, which has a hundred times as many percent: "5%" of 0.05.
std::string percent_text(std::string_view number) {
  std::string_view rest = number;
  const std::optional<Decimal> share = take_decimal(rest);
  if (!share || !rest.empty() || share->digits >= share->scale) return std::string(number) + "%";
  const std::optional<Duration> percent =
      reduced(DurationUnit::kPercent, share->digits * 100, share->scale);
  return percent ? decimal_text(percent->count, percent->scale) + "%" : "";
}

/// What `number` with a unit of `units` can be: ": 10step, 10ep"; if nothing, the units.
std::string examples(std::string_view number, unsigned units) {
  std::vector<std::string> texts;
  for (const std::string& name : unit_names(units)) {
    const std::string text = name == "%" ? percent_text(number) : std::string(number) + name;
    if (is_accepted(text, units)) texts.push_back(text);
  }
  return texts.empty() ? " (" + describe_units(units) + ")" : ": " + join_words(texts);
}

/// A number with an exponent, written out: "; write 5000step"; "" where that is not accepted.
std::string written_out(std::string_view number, std::string_view rest, unsigned units) {
  double value = 0.0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  if (value != std::floor(value)) return "";
  const std::string text = std::to_string(static_cast<int64_t>(value)) + std::string(rest);
  return is_accepted(text, units) ? "; write " + text : "";
}

bool is_unit_of(std::string_view unit, unsigned units) {
  const std::vector<std::string> names = unit_names(units);
  return std::ranges::find(names, unit) != names.end();
}

/// The unit that a text begins with, behind the letter of a power of 1000.
std::string_view unit_at_front(std::string_view text) {
  if (text.starts_with('%')) return text.substr(0, 1);
  const bool has_power = !text.empty() && kMultipliers.find(text[0]) != std::string_view::npos;
  const std::string_view behind = text.substr(has_power ? 1 : 0);
  if (behind == "step" || behind == "tok") return behind;
  std::size_t length = 0;
  while (length < text.size() && std::isalpha(static_cast<unsigned char>(text[length]))) ++length;
  return text.substr(0, length);
}

bool is_beyond_limit(std::string_view number) {
  double value = 0.0;
  const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
  return read.ec == std::errc::result_out_of_range || value > static_cast<double>(kMaxCount);
}

/// What users write for a unit that has another name: `epochs`, `steps`, `hours`, `m`.
std::string usual_unit(std::string_view name) {
  if (name == "m") return "min";
  struct Usual {
    std::string_view start, unit;
  };
  constexpr std::array kUsual{Usual{"epoch", "ep"}, Usual{"step", "step"}, Usual{"iter", "step"},
                              Usual{"tok", "tok"},  Usual{"sec", "s"},     Usual{"min", "min"},
                              Usual{"hour", "h"},   Usual{"hr", "h"},      Usual{"day", "d"},
                              Usual{"percent", "%"}};
  for (const auto& [start, unit] : kUsual) {
    if (name.starts_with(start)) return std::string(unit);
  }
  return "";
}

std::string time_text(const Duration& duration) {
  std::string text;
  int64_t rest = duration.count;
  for (const TimeUnit& unit : kTimeUnits) {
    if (unit.seconds == 1) break;
    const int64_t size = unit.seconds * duration.scale;
    if (rest >= size) text += std::to_string(rest / size) + std::string(unit.name);
    rest %= size;
  }
  if (rest > 0 || text.empty()) text += decimal_text(rest, duration.scale) + "s";
  return text;
}

std::string token_text(int64_t count) {
  std::size_t power = 0;
  for (; count > 0 && count % 1000 == 0 && power < kMultipliers.size(); ++power) count /= 1000;
  const std::string letter = power == 0 ? "" : std::string(1, kMultipliers[power - 1]);
  return std::to_string(count) + letter + "tok";
}

}  // namespace

int64_t to_steps(const Duration& duration, const StepScale& scale) {
  const auto require = [&duration](bool is_known, const char* why) {
    if (!is_known) throw ConfigError(to_text(duration) + " cannot be counted in steps: " + why);
  };
  Wide counted = duration.count, per_step = duration.scale;
  switch (duration.unit) {
    case DurationUnit::kStep:
      return duration.count;
    case DurationUnit::kEpoch:
      require(scale.samples_per_epoch > 0 && scale.samples_per_step > 0,
              "the length of an epoch is not known");
      counted *= scale.samples_per_epoch;
      per_step *= scale.samples_per_step;
      break;
    case DurationUnit::kToken:
      require(scale.tokens_per_sample > 0 && scale.samples_per_step > 0, "the data has no tokens");
      per_step *= Wide{scale.tokens_per_sample} * scale.samples_per_step;
      break;
    case DurationUnit::kPercent:
      require(scale.total_steps > 0, "the length of the run is not known");
      counted *= scale.total_steps;
      per_step *= 100;
      break;
    case DurationUnit::kSecond:
      require(false, "it is a time");
  }
  const Wide steps = (counted + per_step - 1) / per_step;
  if (steps > kMaxCount) throw ConfigError(to_text(duration) + " is too many steps");
  return static_cast<int64_t>(steps);
}

int64_t steps_of(const std::string& key, const Duration& duration, const StepScale& scale) {
  try {
    return to_steps(duration, scale);
  } catch (const ConfigError& error) {
    throw ConfigError(key + ": " + error.what());
  }
}

std::optional<Duration> parse_duration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const std::optional<Duration> count = parse_count(text);
  return count ? count : parse_time(text);
}

std::string to_text(const Duration& duration) {
  switch (duration.unit) {
    case DurationUnit::kStep:
      return std::to_string(duration.count) + "step";
    case DurationUnit::kEpoch:
      return decimal_text(duration.count, duration.scale) + "ep";
    case DurationUnit::kToken:
      return token_text(duration.count);
    case DurationUnit::kPercent:
      return decimal_text(duration.count, duration.scale) + "%";
    case DurationUnit::kSecond:
      break;
  }
  return time_text(duration);
}

std::string describe_units(unsigned units) {
  std::vector<std::string> names = unit_names(units);
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : join_words(names) + " or " + last;
}

std::string explain_duration(std::string_view text, unsigned units) {
  if (text.starts_with('-') && number_length(text.substr(1)) > 0) return "is negative";
  const std::size_t length = number_length(text);
  if (length == 0) return "";
  const std::string_view number = text.substr(0, length);
  std::string_view rest = text.substr(length);
  if (rest.empty()) return "needs a unit" + examples(number, units);
  const bool has_blank = rest.starts_with(' ');
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const std::string_view unit = unit_at_front(rest);
  if (!is_unit_of(unit, kAllDurationUnits)) {
    const std::string usual = std::string(number) + usual_unit(unit);
    return "has no unit that is known (" + describe_units(units) + ")" +
           (is_accepted(usual, units) ? "; did you mean '" + usual + "'?" : "");
  }
  if (!is_unit_of(unit, units)) return "has another unit than " + describe_units(units);
  const std::string joined = std::string(number) + std::string(rest);
  if (has_blank && is_accepted(joined, units)) return "has a blank; write " + joined;
  if (is_beyond_limit(number)) return "is too large";
  if (number.find_first_of("eE") != std::string_view::npos) {
    return "has an exponent" + written_out(number, rest, units);
  }
  if (number.size() > 1 && number[0] == '0' && number[1] != '.') {
    return "has a leading zero; leave it out";
  }
  const bool has_more = unit.size() < rest.size() && unit != "step" && unit != "tok";
  if (has_more && is_unit_of(unit, static_cast<unsigned>(DurationUnit::kSecond))) {
    return "is not a time; write 3h50min, the largest unit first";
  }
  if (has_more) return "has more behind its unit";
  const bool is_whole = number.find('.') == std::string_view::npos;
  return is_whole ? "is too large" : "is not a whole number, or too precise";
}

}  // namespace shoal
