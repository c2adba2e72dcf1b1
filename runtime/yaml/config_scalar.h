#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The strict reading of single values: no octal, no `yes`, no nan, nothing silently rounded.
namespace shoal::config {

/// Decimal integer; `3e8` and `1.5e3` too, if exact. On failure nothing, and `problem` is why.
std::optional<int64_t> parse_integer(std::string_view text, std::string& problem);

/// Finite decimal number that a double holds without becoming zero or infinite.
std::optional<double> parse_number(std::string_view text, std::string& problem);

/// `true` or `false`, nothing else.
std::optional<bool> parse_boolean(std::string_view text, std::string& problem);

/// Shortest text that parse_number reads back to the same double: 0.002, 1e-6, 3e20.
std::string number_text(double value);

/// Where a text's first character is that shows nothing and may reorder or hide what is around it
/// (of Unicode's controls and formats, and ends of lines), as bytes of the text; nothing if there
/// is none. The text is UTF-8.
struct Stretch {
  std::size_t begin, length;
};
std::optional<Stretch> find_invisible(std::string_view text);
/// The first such character, "U+202E"; "" if there is none.
std::string invisible_character(std::string_view text);

}  // namespace shoal::config
