#pragma once

#include <string>
#include <string_view>

namespace shoal {

/// Bytes of tokens as text that may be printed: a character of UTF-8 is held back until it is
/// whole.
class Utf8Stream {
 public:
  /// What can be printed once these bytes have come.
  std::string add(std::string_view bytes);
  /// What is left, though it is no whole character.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace shoal
