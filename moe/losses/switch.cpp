#include "moe/losses/balance_loss.h"

// T tokens  U units  K choices per token  S scope instances
namespace shoal {

enum class CountedChoices {
  kSelected,     ///< all k of a token
  kFirstChoice,  ///< its best one
};

template <>
inline constexpr std::array kEnumWords<CountedChoices>{"selected", "first_choice"};

namespace {

/// U * sum over units of f P: f is the share of the counted choices that fell on the unit, before
/// capacity, P its mean clean score. Even use gives 1. f has no gradient.
/// Source: Fedus et al. 2022 (Switch Transformer), equations 4 to 6; with first choices alone,
/// Lepikhin et al. 2020 (GShard), algorithm 1.
class SwitchLoss : public BalanceLoss {
 public:
  struct Options {
    BalanceLossOptions common;
    CountedChoices counts = CountedChoices::kSelected;

    static constexpr auto fields() {
      return std::tuple{inlined<Options>(&Options::common),
                        field("counts", &Options::counts, "which choices of a token are counted")};
    }
  };
  explicit SwitchLoss(const Options& options)
      : BalanceLoss(options.counts == CountedChoices::kSelected ? "switch" : "switch_first_choice",
                    options.common),
        counts_(options.counts) {}

  bool evens_out_loads() const override { return true; }
  torch::Tensor value_S(const Routing& routing, const Scope& scope) const override {
    const torch::Tensor counted_TK = counts_ == CountedChoices::kSelected
                                         ? routing.choice_TK
                                         : routing.choice_TK.narrow(1, 0, 1);
    const torch::Tensor score_SU = scope.sum(routing.prob_TU);
    const torch::Tensor tokens_S = scope.tokens_S().to(score_SU.options());
    const double factor =
        static_cast<double>(routing.num_units) / static_cast<double>(counted_TK.size(1));
    return (count(counted_TK, routing.prob_TU, scope) * score_SU).sum(1) *
           (factor / tokens_S.square());
  }

 private:
  /// How often each unit was chosen, [S, U].
  static torch::Tensor count(const torch::Tensor& unit_TK, const torch::Tensor& like_TU,
                             const Scope& scope) {
    const torch::NoGradGuard no_grad;
    return scope.sum(torch::zeros_like(like_TU).scatter_(1, unit_TK, 1.0));
  }

  CountedChoices counts_;
};

const Registration<BalanceLoss, SwitchLoss> registered_switch_loss{
    "switch", "units times the sum of (fraction of choices x mean score); 1 if both are uniform"};

}  // namespace
}  // namespace shoal
