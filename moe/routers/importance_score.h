#pragma once

#include <vector>

#include "moe/routers/top_k.h"

namespace shoal {

/// Importance-score routing: top-k routing of the most important tokens only. Source: Lou et al.
/// 2021 (Sparse-MLP), section 2.2, equation 3; its "to all channels" must mean "to all experts".
///
/// A token's importance is its highest score (with noise while training, without selection bias)
/// over all units (experts) or, with a group limit, over the groups of units it may be routed to.
/// In each routing group (train.group samples, a recipe key) of M tokens the floor(drop * M) least
/// important tokens (of equal tokens the later) are not sent to any unit: their output is zero, and
/// the residual connection keeps them. Balance losses cover all tokens. Evaluation leaves out the
/// share `eval_drop`: 0 by default, since a drop makes predictions depend on other samples.
class ImportanceScoreRouter : public TopKRouter {
 public:
  struct Options {
    ScoreOptions top_k{1, RouterNoise::kGaussian, {}};
    double drop = 0.1;
    double eval_drop = 0.0;

    static constexpr auto fields() {
      return std::tuple{
          inlined<Options>(&Options::top_k),
          field("drop", &Options::drop, "fraction of a group's tokens dropped in training",
                in_range(0, below(1)), keeps_evaluation()),
          field("eval_drop", &Options::eval_drop, "the same in evaluation", in_range(0, below(1)))};
    }
  };
  ImportanceScoreRouter(const Options& options, const Context& context)
      : TopKRouter(options.top_k, context), drop_(options.drop), eval_drop_(options.eval_drop) {}

  /// Default losses: `importance` and, with noise, `load` (Lou et al. 2021); none with a selection
  /// bias. If `scores_only` (all units compute every token, weighted by its scores): `kl_uniform`.
  std::vector<UsualLoss> usual_losses(bool scores_only) const override;
  Routing route(const torch::Tensor& x_TD, const TokenContext& context) override;
  /// False with a drop or eval_drop, which compares all tokens of a routing group.
  bool is_causal() const override { return drop_ == 0 && eval_drop_ == 0; }
  bool depends_on_other_samples() const override { return eval_drop_ > 0; }
  std::string causal_hint() const override { return "drop and eval_drop 0"; }
  /// The weights of a token that is left out are 0.
  bool weights_sum_to_one() const override {
    return drop_ == 0 && eval_drop_ == 0 && TopKRouter::weights_sum_to_one();
  }
  void check_scores_only(const std::string& path, Problems& problems) const override;

 private:
  double drop_, eval_drop_;
};

}  // namespace shoal
