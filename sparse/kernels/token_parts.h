#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal {

/// Splits tokens into parts that a GPU sums separately in a gradient of values, to keep it busy.
/// The parts depend only on the number of tokens, since the order of summation affects the result.
struct TokenParts {
  static constexpr int64_t kLeastTokens = 256, kMostParts = 16;

  explicit TokenParts(int64_t tokens)
      : part_tokens(std::max(kLeastTokens, (tokens + kMostParts - 1) / kMostParts)),
        parts((tokens + part_tokens - 1) / part_tokens) {}

  int64_t part_tokens, parts;
};

}  // namespace shoal
