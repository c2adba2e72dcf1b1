#include <algorithm>

#include "moe/kernels/logit_functions.h"
#include "moe/kernels/row_top_k.h"
#include "moe/routing/score_router.h"
#include "runtime/base/exact_share.h"

// T tokens  U units  C tokens that a unit takes from a routing group
namespace shoal {
namespace {

/// Units choose tokens: in each routing group of T tokens every unit takes the C = ceil(k T factor
/// / U) tokens of the highest softmax scores (at most T), ties to the lower token. Weights are the
/// scores. A token may have any number of units, also none. Evaluation does the same: predictions
/// depend on the samples beside them.
/// Parameter: `weight` [D, U]. Source: Zhou et al. 2022, section 3.2.
class ExpertChoiceRouter : public ScoreRouter {
 public:
  struct Options {
    int64_t k = 2;
    double factor = 1.0;

    static constexpr auto fields() {
      return std::tuple{
          field("k", &Options::k, "units per token on average, if factor is 1", at_least(1)),
          field("factor", &Options::factor, "tokens per unit divided by its even share", above(0))};
    }
  };
  ExpertChoiceRouter(const Options& options, const Context& context)
      : ScoreRouter({options.k, RouterNoise::kNone}, context), factor_(options.factor) {}

  Routing route(const torch::Tensor& x_TD, const TokenContext& context) override {
    Routing routing;
    routing.num_units = num_units();
    routing.group_offsets = context.group_offsets;
    routing.logits_TU = routing.noisy_TU = logits(x_TD);
    routing.prob_TU = row_softmax(routing.logits_TU);
    // Choice u of a token is unit u or none, so that the scores are the weights.
    routing.choice_TK = choose(routing.prob_TU.detach(), context.group_offsets);
    routing.unit_TK = routing.choice_TK;
    routing.weight_TK = routing.prob_TU;
    routing.score_TK = routing.prob_TU.detach();
    return routing;
  }

  double routed_per_token() const override {
    return std::min(factor_ * static_cast<double>(units_per_token()),
                    static_cast<double>(num_units()));
  }
  bool takes_balance_losses() const override { return false; }
  bool chooses_per_unit() const override { return true; }
  bool is_causal() const override { return false; }
  bool depends_on_other_samples() const override { return true; }

 private:
  torch::Tensor choose(const torch::Tensor& score_TU, const std::vector<int64_t>& offsets) const {
    const torch::TensorOptions integers = score_TU.options().dtype(torch::kInt64);
    const torch::Tensor unit_1U = torch::arange(num_units(), integers).unsqueeze(0);
    torch::Tensor chosen_TU = torch::full(score_TU.sizes(), -1, integers);
    for (size_t g = 0; g + 1 < offsets.size(); ++g) {
      const int64_t num_tokens = offsets[g + 1] - offsets[g];
      const int64_t share =
          ceil_share(num_tokens * units_per_token(), decimal_of(factor_), num_units());
      const torch::Tensor score_UT = score_TU.slice(0, offsets[g], offsets[g + 1]).t().contiguous();
      const torch::Tensor token_CU = top_k(score_UT, std::min(share, num_tokens)).t();
      chosen_TU.slice(0, offsets[g], offsets[g + 1])
          .scatter_(0, token_CU, unit_1U.expand({token_CU.size(0), -1}));
    }
    return chosen_TU;
  }

  double factor_;
};

const Registration<Router, ExpertChoiceRouter> registered_expert_choice_router{
    "expert_choice", "every unit chooses the same number of tokens"};

}  // namespace
}  // namespace shoal
