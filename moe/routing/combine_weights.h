#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <utility>

#include "moe/routing/score_kinds.h"
#include "runtime/recipe/config.h"

// T tokens  U units  K choices
namespace shoal {

template <>
struct EnumNames<Normalise> {
  static constexpr std::array names{std::pair{Normalise::kNone, "none"},
                                    std::pair{Normalise::kTopkSoftmax, "topk_softmax"},
                                    std::pair{Normalise::kSum, "sum"}};
};

/// How a token's units are weighted (recipe section `router.weights`).
struct CombineWeights {
  Normalise normalise = Normalise::kNone;
  bool renorm_after_drop = false;
  double scale = 1.0;

  static constexpr auto fields() {
    return std::tuple{
        field("normalise", &CombineWeights::normalise, "weights over the chosen units"),
        field("renorm_after_drop", &CombineWeights::renorm_after_drop,
              "divide the weights that survive capacity by their sum"),
        field("scale", &CombineWeights::scale, "factor of all weights, applied last", above(0))};
  }
};

/// [T, K] weights of `unit_TK` before capacity and scale. score_TU: non-negative. logits_TU are
/// what the scores were made of.
torch::Tensor combine_weights(const torch::Tensor& score_TU, const torch::Tensor& logits_TU,
                              const torch::Tensor& unit_TK, Normalise normalise);

/// With one unit a token, a normalised weight is 1 whatever the scores are, and the router learns
/// nothing: reports options that do not fit k = 1, as those of the section `weights`.
void check_combine_weights(const CombineWeights& weights, int64_t k, Problems& problems);

}  // namespace shoal
