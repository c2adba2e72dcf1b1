#pragma once

#include "moe/routing/score_router.h"

namespace shoal {

/// The standard top-k router over U units (experts): G(x) = TopK(softmax(W_g x + noise)), tokens
/// [T, D] -> units and combine weights [T, k]. ScoreOptions set k, noise (default: normal, standard
/// deviation 1 / U) and how weights are normalised (default: not at all). Source: Lou et al. 2021
/// (Sparse-MLP), equation 2; Riquelme et al. 2021 (V-MoE), `routing.py`.
class TopKRouter : public ScoreRouter {
 public:
  using Options = ScoreOptions;
  using ScoreRouter::ScoreRouter;

 protected:
  std::optional<RouterScore> fused_kernel_score() const override { return RouterScore::kSoftmax; }
};

}  // namespace shoal
