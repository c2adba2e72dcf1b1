#include <limits>

#include "moe/kernels/logit_functions.h"
#include "moe/routing/score_router.h"

// T tokens  U units
namespace shoal {
namespace {

/// Each unit is scored on its own, by sqrt(softplus(logit)); by default the k scores are divided by
/// their sum. Source: Megatron-Core, `topk_routing_with_score_function`.
class SqrtSoftplusRouter : public ScoreRouter {
 public:
  struct Options : ScoreOptions {
    Options() : ScoreOptions{2, RouterNoise::kNone, {Normalise::kSum}} {}
  };
  using ScoreRouter::ScoreRouter;

 protected:
  torch::Tensor score(const torch::Tensor& logits_TU) const override {
    // The root has no slope at 0, where softplus underflows.
    return logit_softplus(logits_TU).clamp_min(std::numeric_limits<float>::min()).sqrt();
  }
  bool scores_sum_to_one() const override { return false; }
};

const Registration<Router, SqrtSoftplusRouter> registered_sqrt_softplus_router{
    "sqrt_softplus", "the k units with the highest scores sqrt(softplus(logit))"};

}  // namespace
}  // namespace shoal
