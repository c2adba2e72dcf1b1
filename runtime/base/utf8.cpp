#include "runtime/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace shoal {
namespace {

/// The bytes of a character, by the first of them.
struct FirstByte {
  size_t length;                      ///< of the character; 0: no character begins so
  uint8_t least = 0x80, most = 0xBF;  ///< range of the second byte
};

FirstByte read_first_byte(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

size_t skip_ascii(std::string_view text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  for (uint64_t eight = 0; at + sizeof(eight) <= text.size(); at += sizeof(eight)) {
    std::memcpy(&eight, text.data() + at, sizeof(eight));
    if ((eight & kHighBits) != 0) break;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

Utf8Check check_utf8(std::string_view text) {
  size_t at = 0;
  while ((at = skip_ascii(text, at)) < text.size()) {
    const FirstByte first = read_first_byte(static_cast<uint8_t>(text[at]));
    if (first.length == 0) return {at, false};
    for (size_t i = 1; i < first.length; ++i) {
      if (at + i == text.size()) return {at, true};
      const auto byte = static_cast<uint8_t>(text[at + i]);
      const bool fits =
          i == 1 ? byte >= first.least && byte <= first.most : continues_character(text[at + i]);
      if (!fits) return {at, false};
    }
    at += first.length;
  }
  return {at, false};
}

}  // namespace shoal
