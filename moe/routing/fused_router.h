#pragma once

#include <torch/types.h>

#include <cstdint>

#include "moe/routing/score_kinds.h"

// T tokens  U units  K choices
namespace shoal {

struct FusedRouterOptions {
  int64_t k = 1;
  RouterScore score = RouterScore::kSoftmax;
  Normalise normalise = Normalise::kNone;
};

/// Results of ScoreRouter::route's separate steps, computed at once.
struct FusedChoices {
  torch::Tensor score_TU;         ///< differentiable
  torch::Tensor choice_TK;        ///< int64, best first, ties to the lower unit
  torch::Tensor chosen_score_TK;  ///< scores of the choices
  torch::Tensor weight_TK;        ///< combine_weights(); differentiable
  torch::Tensor count_U;          ///< int64: choices of each unit
};

/// True if `fused_router` supports these: on a GPU, float32 or float64, up to 256 units, k <= 8.
bool can_fuse_router(const torch::Tensor& logits_TU, int64_t k);

/// Scores, top-k choices, weights and counts in one launch forward and one backward, plus one that
/// clears the counts. Choices are the highest logits or, with a bias, the highest score + bias.
/// `bias_U` may be undefined. The steps of ScoreRouter::route are the reference. TORCH_CHECK unless
/// can_fuse_router and 1 <= k <= U.
FusedChoices fused_router(const torch::Tensor& logits_TU, const torch::Tensor& bias_U,
                          const FusedRouterOptions& options);

}  // namespace shoal
