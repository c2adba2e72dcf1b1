#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal {

/// Parts of the tokens that a GPU sums by themselves in a gradient of values, so that there is work
/// for all of it: by the number of tokens alone, since the order of a sum is part of its result.
struct TokenParts {
  static constexpr int64_t kLeastTokens = 256, kMostParts = 16;

  explicit TokenParts(int64_t tokens)
      : part_tokens(std::max(kLeastTokens, (tokens + kMostParts - 1) / kMostParts)),
        parts((tokens + part_tokens - 1) / part_tokens) {}

  int64_t part_tokens, parts;
};

}  // namespace shoal
