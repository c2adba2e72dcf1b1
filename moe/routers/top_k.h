#pragma once

#include "moe/routing/score_router.h"

namespace shoal {

/// The standard top-k router over U units (experts): G(x) = TopK(softmax(W_g x + noise)), by
/// default with normal noise of standard deviation 1 / U. Source: Lou et al. 2021 (Sparse-MLP),
/// equation 2; Riquelme et al. 2021 (V-MoE), `routing.py`.
class TopKRouter : public ScoreRouter {
 public:
  using Options = ScoreOptions;
  using ScoreRouter::ScoreRouter;

 protected:
  std::optional<RouterScore> fused_score() const override { return RouterScore::kSoftmax; }
};

}  // namespace shoal
