#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "runtime/options/config.h"

namespace shoal {

/// The dtype in which rows (one token on its way to one unit) are sent between ranks.
enum class Payload {
  kSame,      ///< the dtype they are computed in
  kBfloat16,  ///< bfloat16, also for rows that stay on their rank: results do not depend on ranks
};

template <>
inline constexpr std::array kEnumWords<Payload>{"same", "bfloat16"};

/// Most chunks of a layer's rows. The all-to-all of one chunk overlaps with work on another.
inline constexpr int64_t kMostChunks = 4;

/// True if rows are cut into `chunks` chunks by unit (expert), which keeps matrix products large
/// and needs no adding up of weight gradients. The exchange must not be hierarchical
/// (`has_levels`), and a rank with units must have at least `chunks` of them (`fewest_units`).
/// Otherwise rows are cut by tokens, in whole routing groups (train.group samples).
inline bool cuts_by_unit(int64_t chunks, bool has_levels, int64_t fewest_units) {
  return !has_levels && fewest_units >= chunks;
}

/// Section `exchange` of a MoE layer in the YAML recipe: how rows are exchanged between ranks.
struct ExchangeOptions {
  int64_t chunks = 1;
  bool hierarchical = false;
  Payload payload = Payload::kSame;

  // keeps_evaluation: an evaluation may use another value. kFree: so may a resumed run.
  static constexpr auto fields() {
    return std::tuple{
        field("chunks", &ExchangeOptions::chunks,
              "number of chunks: experts compute one while the next is in flight",
              in_range(1, kMostChunks), keeps_evaluation(), on_resume(OnResume::kFree)),
        field("hierarchical", &ExchangeOptions::hierarchical,
              "send a token once to each other node and sum its outputs there", keeps_evaluation(),
              on_resume(OnResume::kFree)),
        field("payload", &ExchangeOptions::payload,
              "dtype in which rows, or a node's sums of them, are sent")};
  }
};

}  // namespace shoal
