#include "moe/losses/balance_loss.h"

// T tokens  U units  S scope instances
namespace shoal {
namespace {

/// U times the sum of the squares of the units' mean scores: 1 where they are even.
class EvenSquaresLoss final : public BalanceLoss {
 public:
  using Options = BalanceLossOptions;
  explicit EvenSquaresLoss(const Options& options) : BalanceLoss("even_squares", options) {}

  bool evens_out_loads() const override { return true; }
  torch::Tensor value_S(const Routing& routing, const Scope& scope) const override {
    const torch::Tensor score_SU = scope.sum(routing.prob_TU);
    const torch::Tensor tokens_S1 = scope.tokens_S().to(score_SU.options()).unsqueeze(1);
    return (score_SU / tokens_S1).square().sum(1) * routing.num_units;
  }
};

const Registration<BalanceLoss, EvenSquaresLoss> registered_even_squares_loss{"even_squares",
                                                                              "for this test"};

}  // namespace
}  // namespace shoal
