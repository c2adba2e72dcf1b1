#include "moe/kernels/logit_functions.h"
#include "moe/routing/score_router.h"

// T tokens  U units
namespace shoal {
namespace {

/// Each unit is scored on its own, by the sigmoid of its logit; by default the k scores are divided
/// by their sum. Source: DeepSeek-AI 2024 (V3), equations 13 to 15.
class SigmoidRouter : public ScoreRouter {
 public:
  struct Options : ScoreOptions {
    Options() : ScoreOptions{2, RouterNoise::kNone, {Normalise::kSum}} {}
  };
  using ScoreRouter::ScoreRouter;

 protected:
  torch::Tensor score(const torch::Tensor& logits_TU) const override {
    return logit_sigmoid(logits_TU);
  }
  bool scores_sum_to_one() const override { return false; }
  std::optional<RouterScore> fused_kernel_score() const override { return RouterScore::kSigmoid; }
};

const Registration<Router, SigmoidRouter> registered_sigmoid_router{
    "sigmoid", "the k units with the highest sigmoid scores"};

}  // namespace
}  // namespace shoal
