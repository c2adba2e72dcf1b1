#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Strict parsing of single values of recipes: no octal, no `yes`, no nan, no silent rounding.
namespace shoal::config {

/// Parses a decimal integer; `3e8` and `1.5e3` too, if exact. On failure sets `problem`, a text for
/// the user, and returns nullopt; so do parse_number and parse_boolean.
std::optional<int64_t> parse_integer(std::string_view text, std::string& problem);

/// Parses a finite decimal number that neither underflows nor overflows a double.
std::optional<double> parse_number(std::string_view text, std::string& problem);

/// Parses `true` or `false`.
std::optional<bool> parse_boolean(std::string_view text, std::string& problem);

/// Shortest text that parse_number parses to the same double: 0.002, 1e-6, 3e20.
std::string number_text(double value);

/// Byte range of a text's first invisible character, which may reorder or hide the text around it
/// (Unicode controls, formats and line ends); nullopt if there is none. The text is UTF-8.
struct Stretch {
  std::size_t begin, length;
};
std::optional<Stretch> find_invisible(std::string_view text);
/// The first invisible character, as "U+202E"; "" if there is none.
std::string invisible_character(std::string_view text);

}  // namespace shoal::config
