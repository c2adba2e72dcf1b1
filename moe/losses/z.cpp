#include "moe/losses/balance_loss.h"

// T tokens  U units  S scope instances
namespace shoal {
namespace {

/// Mean over tokens of the squared logarithm of the softmax's denominator: keeps the clean logits
/// small, which the softmax alone does not.
/// Source: Zoph et al. 2022 (ST-MoE), equation 5.
class ZLoss : public BalanceLoss {
 public:
  using Options = BalanceLossOptions;
  explicit ZLoss(const Options& options) : BalanceLoss("z", options) {}

  bool evens_out_loads() const override { return false; }
  torch::Tensor value_S(const Routing& routing, const Scope& scope) const override {
    const torch::Tensor z_T1 = routing.logits_TU.logsumexp(1, /*keepdim=*/true);
    const torch::Tensor sum_S = scope.sum(z_T1.square()).squeeze(1);
    return sum_S / scope.tokens_S().to(sum_S.options());
  }
};

const Registration<BalanceLoss, ZLoss> registered_z_loss{"z",
                                                         "mean squared log-sum-exp of the logits"};

}  // namespace
}  // namespace shoal
