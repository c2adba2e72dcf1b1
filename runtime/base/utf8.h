#pragma once

#include <cstddef>
#include <string_view>

namespace shoal {

/// The well-formed UTF-8 at the start of a text (RFC 3629: no surrogates, no overlong forms).
struct Utf8Check {
  size_t valid = 0;     ///< bytes at the start that are complete characters
  bool is_cut = false;  ///< true if `text` ends within a character
};
Utf8Check check_utf8(std::string_view text);

/// True for a byte that continues a character.
inline bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace shoal
