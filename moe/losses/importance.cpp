#include "moe/losses/balance_loss.h"

// T tokens  U units  S scope instances
namespace shoal {
namespace {

/// CV^2 of the units' importance, the sum over tokens of the softmax of the clean logits.
/// Source: Lou et al. 2021 (Sparse-MLP), equations 10 and 11; Riquelme et al. 2021, `routing.py`.
class ImportanceLoss : public BalanceLoss {
 public:
  using Options = BalanceLossOptions;
  explicit ImportanceLoss(const Options& options) : BalanceLoss("importance", options) {}

  bool evens_out_loads() const override { return true; }
  torch::Tensor value_S(const Routing& routing, const Scope& scope) const override {
    return squared_variation(scope.sum(routing.prob_TU));
  }
};

const Registration<BalanceLoss, ImportanceLoss> registered_importance_loss{
    "importance", "squared coefficient of variation of the units' summed router scores"};

}  // namespace
}  // namespace shoal
