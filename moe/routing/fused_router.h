#pragma once

#include <torch/types.h>

#include <cstdint>

#include "moe/routing/score_kinds.h"

// T tokens  U units  K choices
namespace shoal {

/// What a top-k router computes from its logits.
struct FusedRouterOptions {
  int64_t k = 1;  ///< units (experts) a token is routed to
  RouterScore score = RouterScore::kSoftmax;
  Normalise normalise = Normalise::kNone;  ///< how scores become combine weights
};

/// Results of fused_router.
struct FusedChoices {
  torch::Tensor score_TU;         ///< differentiable
  torch::Tensor choice_TK;        ///< int64, best first, ties to the lower unit
  torch::Tensor chosen_score_TK;  ///< scores of the choices
  torch::Tensor weight_TK;        ///< combine weights of the choices, differentiable
  torch::Tensor count_U;          ///< int64: choices of each unit
};

/// True if fused_router supports these: on a GPU, float32 or float64, up to 256 units, k <= 8.
bool can_fuse_router(const torch::Tensor& logits_TU, int64_t k);

/// Computes a top-k router's scores, choices, weights and counts from logits in one kernel forward
/// and one backward, plus one that clears the counts; the separate operators of ScoreRouter::route
/// are the reference. Choices are the highest logits or, with a selection bias `bias_U` (may be
/// undefined), the highest score + bias. TORCH_CHECK unless can_fuse_router and 1 <= k <= U.
FusedChoices fused_router(const torch::Tensor& logits_TU, const torch::Tensor& bias_U,
                          const FusedRouterOptions& options);

}  // namespace shoal
