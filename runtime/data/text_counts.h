#pragma once

#include <cstdint>

namespace shoal {

/// The size of a text in three units. bytes and words are 0 if unknown.
struct TextCounts {
  int64_t tokens = 0;
  int64_t bytes = 0;  ///< of the text before it was split into tokens
  int64_t words = 0;  ///< runs of bytes between white space
};

}  // namespace shoal
