#include "moe/kernels/logit_functions.h"
#include "moe/routing/score_router.h"

// T tokens  U units
namespace shoal {
namespace {

constexpr int kIterations = 8;

/// log v of the diag(u) exp(logits) diag(v) whose rows have equal sums, and whose columns too. The
/// rows' u is not needed: it does not change which units of a row are highest.
torch::Tensor column_scale(const torch::Tensor& logits_TU) {
  const torch::Tensor logits_UT = logits_TU.t().contiguous();
  torch::Tensor log_v_U = torch::zeros({logits_TU.size(1)}, logits_TU.options());
  for (int i = 0; i < kIterations; ++i) {
    const torch::Tensor log_u_T = -row_logsumexp(logits_TU + log_v_U);
    log_v_U = -row_logsumexp(logits_UT + log_u_T);
  }
  return log_v_U;
}

/// While training, the k highest of each token after the scores of a routing group are scaled so
/// that all units get an equal share (8 Sinkhorn iterations on logarithms, without gradient); the
/// weights are those of plain top-k. Evaluation is plain top-k.
/// Source: Clark et al. 2022 (S-BASE), section 3.1; Megatron-Core, `sinkhorn`.
class SinkhornRouter : public ScoreRouter {
 public:
  struct Options {
    int64_t k = 2;
    CombineWeights weights;

    static constexpr auto fields() {
      return std::tuple{field("k", &Options::k, "units a token is routed to", at_least(1)),
                        field("weights", &Options::weights, "how a token's units are weighted")};
    }
    void validate(Problems& problems) const { check_combine_weights(weights, k, problems); }
  };
  SinkhornRouter(const Options& options, const Context& context)
      : ScoreRouter({options.k, RouterNoise::kNone, options.weights}, context) {}

  // Units are balanced already, and choices do not follow the scores that a loss could move.
  bool takes_balance_losses() const override { return false; }
  bool is_causal() const override { return false; }

 protected:
  torch::Tensor selection(const Routing& routing, const torch::Tensor&,
                          const TokenContext& context) const override {
    const torch::Tensor logits_TU = routing.logits_TU.detach();
    if (!context.step.training) return logits_TU;
    torch::Tensor scaled_TU = torch::empty_like(logits_TU);
    for (size_t g = 0; g + 1 < context.group_offsets.size(); ++g) {
      const int64_t first = context.group_offsets[g], end = context.group_offsets[g + 1];
      const torch::Tensor group_TU = logits_TU.slice(0, first, end);
      scaled_TU.slice(0, first, end).copy_(group_TU + column_scale(group_TU));
    }
    return scaled_TU;
  }
};

const Registration<Router, SinkhornRouter> registered_sinkhorn_router{
    "sinkhorn", "top-k of scores that are balanced over units during training"};

}  // namespace
}  // namespace shoal
