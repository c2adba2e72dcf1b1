#pragma once

#include <array>
#include <cstdint>
#include <tuple>
#include <utility>

#include "runtime/options/config.h"

namespace shoal {

/// The dtype in which rows are sent.
enum class Payload {
  kSame,      ///< as they are computed
  kBfloat16,  ///< rounded to bfloat16, also those that stay, so that ranks change nothing
};

template <>
struct EnumNames<Payload> {
  static constexpr std::array names{std::pair{Payload::kSame, "same"},
                                    std::pair{Payload::kBfloat16, "bfloat16"}};
};

/// The most chunks that a layer's rows are cut into: by unit where each rank has a unit for each
/// chunk, else, and in a hierarchical exchange, by whole routing groups of tokens.
inline constexpr int64_t kMostChunks = 4;

/// True if chunks are cut by unit, not by tokens: products stay as large as without chunks, and no
/// gradients of weights are added up.
inline bool cuts_by_unit(int64_t chunks, bool has_levels, int64_t fewest_units) {
  return !has_levels && fewest_units >= chunks;
}

/// The recipe section `exchange`: how rows are exchanged between ranks.
struct ExchangeOptions {
  int64_t chunks = 1;
  bool hierarchical = false;
  Payload payload = Payload::kSame;

  static constexpr auto fields() {
    return std::tuple{
        field("chunks", &ExchangeOptions::chunks,
              "parts of the rows: experts compute one while the next is in flight",
              in_range(1, kMostChunks), keeps_evaluation(), on_resume(OnResume::kFree)),
        field("hierarchical", &ExchangeOptions::hierarchical,
              "send a token once to each other node, which sums its outputs", keeps_evaluation(),
              on_resume(OnResume::kFree)),
        field("payload", &ExchangeOptions::payload,
              "dtype in which rows, or a node's sums of them, are sent")};
  }
};

}  // namespace shoal
