#include <limits>

#include "moe/losses/balance_loss.h"

// T tokens  U units  S scope instances
namespace shoal {
namespace {

/// KL(uniform || p) / U, where p is the mean over tokens of the clean scores. Zero at even use,
/// which tokens that are undecided alike reach as well as tokens that choose different units.
class KlUniformLoss : public BalanceLoss {
 public:
  using Options = BalanceLossOptions;
  explicit KlUniformLoss(const Options& options) : BalanceLoss("kl_uniform", options) {}

  bool evens_out_loads() const override { return true; }
  torch::Tensor value_S(const Routing& routing, const Scope& scope) const override {
    const torch::Tensor score_SU = scope.sum(routing.prob_TU);
    const torch::Tensor tokens_S1 = scope.tokens_S().to(score_SU.options()).unsqueeze(1);
    const auto num_units = static_cast<double>(routing.num_units);
    // Scores that underflowed to zero count as the smallest number: large, but finite.
    const torch::Tensor mean_SU =
        (score_SU / tokens_S1).clamp_min(std::numeric_limits<float>::min());
    return (mean_SU * num_units).log().sum(1) * (-1.0 / (num_units * num_units));
  }
};

const Registration<BalanceLoss, KlUniformLoss> registered_kl_uniform_loss{
    "kl_uniform", "KL divergence between the units' mean scores and a uniform distribution"};

}  // namespace
}  // namespace shoal
