#pragma once

#include <string>
#include <string_view>

namespace shoal {

/// Turns the bytes of generated tokens into printable text: tokens may end inside a UTF-8
/// character, which is held back until it is complete.
class Utf8Stream {
 public:
  /// Takes the next bytes and returns what can be printed now.
  std::string add(std::string_view bytes);
  /// Returns the bytes still held, of an incomplete character.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace shoal
