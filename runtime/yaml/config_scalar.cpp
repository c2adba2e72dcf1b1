#include "runtime/yaml/config_scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "runtime/base/text.h"
#include "runtime/base/utf8.h"

namespace shoal::config {
namespace {

/// A number's spelling, cut into its parts.
struct Spelling {
  bool is_negative = false;
  std::string_view whole;
  std::string_view fraction;
  int64_t exponent = 0;
  bool has_point = false;
  bool has_exponent = false;
};

constexpr int64_t kMaxExponent = 100'000;

std::string_view take_digits(std::string_view& text) {
  std::size_t length = 0;
  while (length < text.size() && text[length] >= '0' && text[length] <= '9') ++length;
  const std::string_view digits = text.substr(0, length);
  text.remove_prefix(length);
  return digits;
}

bool take_sign(std::string_view& text) {
  if (text.empty() || (text[0] != '-' && text[0] != '+')) return false;
  const bool is_negative = text[0] == '-';
  text.remove_prefix(1);
  return is_negative;
}

bool take_exponent(std::string_view& text, Spelling& spelling) {
  text.remove_prefix(1);
  spelling.has_exponent = true;
  const bool is_negative = take_sign(text);
  const std::string_view digits = take_digits(text);
  for (const char digit : digits) {
    spelling.exponent = std::min(kMaxExponent, spelling.exponent * 10 + (digit - '0'));
  }
  if (is_negative) spelling.exponent = -spelling.exponent;
  return !digits.empty();
}

std::optional<Spelling> spell(std::string_view text) {
  Spelling spelling;
  spelling.is_negative = take_sign(text);
  spelling.whole = take_digits(text);
  if (!text.empty() && text[0] == '.') {
    text.remove_prefix(1);
    spelling.has_point = true;
    spelling.fraction = take_digits(text);
  }
  if (spelling.whole.empty() && spelling.fraction.empty()) return std::nullopt;
  if (!text.empty() && (text[0] == 'e' || text[0] == 'E') && !take_exponent(text, spelling)) {
    return std::nullopt;
  }
  return text.empty() ? std::optional(spelling) : std::nullopt;
}

bool has_leading_zero(const Spelling& spelling) {
  return spelling.whole.size() > 1 && spelling.whole[0] == '0';
}

bool is_not_finite_word(std::string_view text) {
  take_sign(text);
  if (!text.empty() && text[0] == '.') text.remove_prefix(1);
  const std::string lower = lower_case(text.substr(0, 9));
  return lower == "nan" || lower == "inf" || lower == "infinity";
}

enum class Exact { kYes, kNotWhole, kTooLarge };

/// The integer that the digits and the exponent spell.
Exact integer_value(const Spelling& spelling, int64_t& value) {
  std::string digits = std::string(spelling.whole) + std::string(spelling.fraction);
  int64_t shift = spelling.exponent - std::ssize(spelling.fraction);
  while (shift < 0 && !digits.empty() && digits.back() == '0') digits.pop_back(), ++shift;
  if (digits.find_first_not_of('0') == std::string::npos) return value = 0, Exact::kYes;
  if (shift < 0) return Exact::kNotWhole;
  if (shift > std::numeric_limits<int64_t>::digits10) return Exact::kTooLarge;
  digits.append(static_cast<std::size_t>(shift), '0');
  if (spelling.is_negative) digits.insert(0, 1, '-');
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return read.ec == std::errc() ? Exact::kYes : Exact::kTooLarge;
}

/// Code points of the categories Cc, Cf, Zl and Zp of Unicode.
constexpr std::array<std::pair<uint32_t, uint32_t>, 22> kInvisible{
    {{0x0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},
     {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
     {0x8e2, 0x8e2},     {0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x202e},
     {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd},
     {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
     {0xe0001, 0xe0001}, {0xe0020, 0xe007f}}};

/// The code point that begins here, of UTF-8.
uint32_t code_point(std::string_view text, std::size_t length) {
  const auto lead = static_cast<unsigned char>(text[0]);
  uint32_t code = length == 1 ? lead : lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  return code;
}

/// Bytes of the character that begins here: at most 4, also of what is no UTF-8.
std::size_t character_length(std::string_view text) {
  std::size_t length = 1;
  while (length < std::min<std::size_t>(4, text.size()) && continues_character(text[length])) {
    ++length;
  }
  return length;
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, std::string& problem) {
  problem = "expected an integer, found " + quoted(text);
  const std::optional<Spelling> spelling = spell(text);
  if (!spelling || (spelling->has_point && !spelling->has_exponent)) return std::nullopt;
  if (has_leading_zero(*spelling)) {
    problem += "; a leading zero could mean octal, leave it out";
    return std::nullopt;
  }
  int64_t value = 0;
  switch (integer_value(*spelling, value)) {
    case Exact::kYes:
      problem = "";
      return value;
    case Exact::kNotWhole:
      problem += ", which is not whole";
      return std::nullopt;
    case Exact::kTooLarge:
      break;
  }
  problem = "the integer " + quoted(text) + " is out of range (64 bits)";
  return std::nullopt;
}

std::optional<double> parse_number(std::string_view text, std::string& problem) {
  const std::string found = quoted(text);
  const std::optional<Spelling> spelling = spell(text);
  if (!spelling) {
    problem = (is_not_finite_word(text) ? "expected a finite number, found "
                                        : "expected a number, found ") +
              found;
    return std::nullopt;
  }
  if (has_leading_zero(*spelling)) {
    problem = "expected a number, found " + found + "; leave the leading zero out";
    return std::nullopt;
  }
  if (text[0] == '+') text.remove_prefix(1);
  double value = 0.0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string digits = std::string(spelling->whole) + std::string(spelling->fraction);
  const bool is_lost = value == 0.0 && digits.find_first_not_of('0') != std::string::npos;
  if (read.ec != std::errc() || !std::isfinite(value) || is_lost) {
    problem = "the number " + found + " is out of range (64-bit float)";
    return std::nullopt;
  }
  return value;
}

std::optional<bool> parse_boolean(std::string_view text, std::string& problem) {
  if (text == "true") return true;
  if (text == "false") return false;
  problem = "expected true or false, found " + quoted(text);
  return std::nullopt;
}

std::string number_text(double value) {
  std::array<char, 32> buffer;
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), written.ptr);
  const std::size_t exponent = text.find('e') + 1;
  if (exponent == 0) return text;
  // 1e-06 becomes 1e-6, 3e+20 becomes 3e20.
  const std::size_t digits = text.find_first_not_of("+-0", exponent);
  return text.replace(exponent, digits - exponent, text[exponent] == '-' ? "-" : "");
}

std::optional<Stretch> find_invisible(std::string_view text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t length = character_length(text.substr(begin));
    const uint32_t code = code_point(text.substr(begin), length);
    const bool is_one = std::ranges::any_of(kInvisible, [code](const auto& range) {
      return code >= range.first && code <= range.second;
    });
    if (is_one) return Stretch{begin, length};
    begin += length;
  }
  return std::nullopt;
}

std::string invisible_character(std::string_view text) {
  const std::optional<Stretch> found = find_invisible(text);
  if (!found) return "";
  return fmt::format("U+{:04X}", code_point(text.substr(found->begin), found->length));
}

}  // namespace shoal::config
