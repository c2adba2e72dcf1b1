#pragma once

#include <cstddef>
#include <string_view>

namespace shoal {

/// How much of a text is well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms).
struct Utf8Check {
  size_t valid = 0;     ///< bytes at the start that are whole characters
  bool is_cut = false;  ///< what follows them is the beginning of a character that `text` cuts off
};
Utf8Check check_utf8(std::string_view text);

/// Whether a byte is one after the first of a character.
inline bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace shoal
