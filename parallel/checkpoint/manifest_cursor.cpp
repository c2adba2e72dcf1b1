#include "parallel/checkpoint/manifest_cursor.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/safetensors.h"

namespace shoal {
namespace {

constexpr size_t kLongestString = size_t{4} << 20;

}  // namespace

void ManifestCursor::fail(const std::string& what) const {
  throw CheckpointError(fmt::format("'{}': byte {}: {}", path_, place_, what));
}

bool ManifestCursor::accept(std::string_view expected) {
  if (text_.substr(place_, expected.size()) != expected) return false;
  place_ += expected.size();
  return true;
}

void ManifestCursor::expect(std::string_view expected) {
  if (!accept(expected)) fail("expected " + json_quote(expected));
}

char ManifestCursor::next() {
  if (place_ == text_.size()) fail("the text ends too early");
  return text_[place_++];
}

int64_t ManifestCursor::integer(bool allow_negative) {
  const bool negative = allow_negative && accept("-");
  const size_t begin = place_;
  int64_t value = 0;
  while (place_ < text_.size() && text_[place_] >= '0' && text_[place_] <= '9') {
    const int64_t digit = text_[place_] - '0';
    // Counted downwards, so that the smallest number fits too.
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, digit, &value)) {
      fail("the number is too large");
    }
    ++place_;
  }
  if (place_ == begin) fail("expected an integer");
  if (!negative && __builtin_sub_overflow(int64_t{0}, value, &value))
    fail("the number is too large");
  return value;
}

uint32_t ManifestCursor::hex_digits(int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; ++i) {
    const char digit = next();
    if (digit >= '0' && digit <= '9') {
      value = value * 16 + static_cast<uint32_t>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      value = value * 16 + static_cast<uint32_t>(digit - 'a' + 10);
    } else {
      fail("expected a lower-case hexadecimal digit");
    }
  }
  return value;
}

uint32_t ManifestCursor::crc() {
  expect("\"");
  const uint32_t value = hex_digits(8);
  expect("\"");
  return value;
}

std::string ManifestCursor::string() {
  expect("\"");
  std::string value;
  for (char byte = next(); byte != '"'; byte = next()) {
    if (static_cast<unsigned char>(byte) < 0x20) fail("a control character in a string");
    if (value.size() == kLongestString) fail("a string of more than 4 MiB");
    if (byte != '\\') {
      value += byte;
      continue;
    }
    switch (next()) {
      case '"':
        value += '"';
        break;
      case '\\':
        value += '\\';
        break;
      case 'n':
        value += '\n';
        break;
      case 'r':
        value += '\r';
        break;
      case 't':
        value += '\t';
        break;
      case 'u': {
        const uint32_t code = hex_digits(4);
        if (code >= 0x20) fail("an escape of a character that needs none");
        value += static_cast<char>(code);
        break;
      }
      default:
        fail("an unknown escape");
    }
  }
  return value;
}

}  // namespace shoal
