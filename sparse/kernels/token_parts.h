#pragma once

#include <algorithm>
#include <cstdint>

namespace shoal {

/// Split of the tokens for the gradient of a sparse weight on a GPU: each part of up to
/// `part_tokens` tokens is summed in parallel, then the sums are added. The split depends on the
/// number of tokens only, so results do not depend on the device.
struct TokenParts {
  static constexpr int64_t kLeastTokens = 256, kMostParts = 16;

  explicit TokenParts(int64_t tokens)
      : part_tokens(std::max(kLeastTokens, (tokens + kMostParts - 1) / kMostParts)),
        parts((tokens + part_tokens - 1) / part_tokens) {}

  int64_t part_tokens, parts;
};

}  // namespace shoal
