#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shoal {

/// Walks over a text of which every byte is known in advance but for numbers and strings.
/// Throws CheckpointError with the path and the byte where the text departs from that.
class ManifestCursor {
 public:
  ManifestCursor(std::string_view text, std::string path) : text_(text), path_(std::move(path)) {}
  /// Steps over `expected`, which must come next.
  void expect(std::string_view expected);
  /// Steps over `expected` if it comes next.
  bool accept(std::string_view expected);
  /// A decimal number without leading zeros; `-` only where negative numbers are allowed.
  int64_t integer(bool allow_negative = false);
  uint64_t count() { return static_cast<uint64_t>(integer()); }
  /// A JSON string as json_quote writes it, of at most 4 MiB.
  std::string string();
  /// Eight lower-case hexadecimal digits in quotes.
  uint32_t crc();
  size_t place() const { return place_; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::string_view text_;
  std::string path_;
  size_t place_ = 0;
  char next();
  uint32_t hex_digits(int count);
};

}  // namespace shoal
