#pragma once

#include <cstddef>
#include <string_view>

namespace shoal {

/// How much of a text is well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms).
struct Utf8Check {
  size_t valid = 0;     ///< length in bytes of the complete characters at the start
  bool is_cut = false;  ///< true if the text ends within the next character
};
Utf8Check check_utf8(std::string_view text);

/// True for a continuation byte of UTF-8, 10xxxxxx.
inline bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace shoal
