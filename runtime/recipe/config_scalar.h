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

/// Byte offset of the first byte that is not well-formed UTF-8; nothing if all is.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

}  // namespace shoal::config
