#include <limits>

#include "moe/losses/balance_loss.h"

// T tokens  U units  S scope instances
namespace shoal {
namespace {

/// Mean over tokens of the entropy of the clean scores, in nats: a low one means that tokens decide
/// for a unit. Alone it lets all decide for the same; a loss that asks for even use goes with it.
class EntropyLoss : public BalanceLoss {
 public:
  using Options = BalanceLossOptions;
  explicit EntropyLoss(const Options& options) : BalanceLoss("entropy", options) {}

  bool evens_out_loads() const override { return false; }
  torch::Tensor value_S(const Routing& routing, const Scope& scope) const override {
    const torch::Tensor log_TU = routing.prob_TU.clamp_min(std::numeric_limits<float>::min()).log();
    const torch::Tensor sum_S = scope.sum((routing.prob_TU * log_TU).sum(1, true)).squeeze(1);
    return -sum_S / scope.tokens_S().to(sum_S.options());
  }
};

const Registration<BalanceLoss, EntropyLoss> registered_entropy_loss{
    "entropy", "mean entropy of each token's scores; low if tokens prefer a single unit"};

}  // namespace
}  // namespace shoal
