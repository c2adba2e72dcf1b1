#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "moe/routing/fused_router.h"
#include "moe/routing/router.h"

// T tokens  D width  U units  K choices
namespace shoal {

/// Normal noise of mean 0 on a router's logits while training; keyed by the token's global id.
enum class RouterNoise {
  kNone,
  kGaussian,  ///< with standard deviation 1 / U
  kLearned,   ///< with standard deviation softplus(W_noise x) + 0.01, separate for each unit
};

template <>
inline constexpr std::array kEnumWords<RouterNoise>{"none", "gaussian", "learned"};

/// A token's score for a group of units (experts): the sum of some of its scores in the group.
enum class GroupScore {
  kTop2Sum,  ///< its two highest scores (DeepSeek-V3)
  kMax,      ///< its highest score (DeepSeek-V2)
  kTopkSum,  ///< its max(1, floor(k / keep)) highest scores (Megatron)
};

template <>
inline constexpr std::array kEnumWords<GroupScore>{"top2_sum", "max", "topk_sum"};

template <>
inline constexpr std::array kEnumWords<Normalise>{"none", "topk_softmax", "sum"};

/// How a token's units are weighted (recipe section `router.weights`).
struct CombineWeights {
  Normalise normalise = Normalise::kNone;
  bool renorm_after_drop = false;
  double scale = 1.0;

  static constexpr auto fields() {
    return std::tuple{
        field("normalise", &CombineWeights::normalise, "normalization of the weights"),
        field("renorm_after_drop", &CombineWeights::renorm_after_drop,
              "renormalize the weights that remain after capacity drops"),
        field("scale", &CombineWeights::scale, "factor for all weights, applied last", above(0))};
  }
};

/// Reports, under `weights`, normalising with k = 1, where weights are always 1 and learn nothing.
void check_combine_weights(const CombineWeights& weights, int64_t k, Problems& problems);

/// Limits a token to some groups of units (DeepSeek; YAML recipe section `router.groups`).
struct GroupLimit {
  int64_t count = 1;
  int64_t keep = 1;
  GroupScore score = GroupScore::kTop2Sum;

  static constexpr auto fields() {
    return std::tuple{
        field("count", &GroupLimit::count, "equal groups of consecutive units; 1: no limit",
              at_least(1)),
        field("keep", &GroupLimit::keep, "groups that a token may be routed to", at_least(1)),
        field("score", &GroupLimit::score, "how the scores of a group are combined")};
  }
};

/// Balances loads without a loss (DeepSeek-V3): a bias on the scores that affects the choice of
/// units but not their weights (recipe section `router.bias`).
struct SelectionBias {
  double rate = 0.0;
  bool centred = false;

  static constexpr auto fields() {
    return std::tuple{
        field("rate", &SelectionBias::rate,
              "update rate of the units' selection bias, per optimizer step; 0: no bias",
              at_least(0)),
        field("centred", &SelectionBias::centred, "subtract the mean of the updates of a step")};
  }
};

/// Options of routers that choose the units with the highest scores.
struct ScoreOptions {
  int64_t k = 2;
  RouterNoise noise = RouterNoise::kGaussian;
  CombineWeights weights = {};
  GroupLimit groups = {};
  SelectionBias bias = {};

  static constexpr auto fields() {
    return std::tuple{
        field("k", &ScoreOptions::k, "units a token is routed to", at_least(1)),
        field("noise", &ScoreOptions::noise, "noise on the logits during training",
              keeps_evaluation()),
        field("weights", &ScoreOptions::weights, "how a token's units are weighted"),
        field("groups", &ScoreOptions::groups, "limits a token to some groups of units"),
        field("bias", &ScoreOptions::bias, "balances without a loss", keeps_evaluation())};
  }
  void validate(Problems& problems) const { check_combine_weights(weights, k, problems); }
};

/// Base of the top-k routers: a token is routed to the k units (experts) with the highest scores (+
/// selection bias) within its best groups. Ties go to the lower unit and group. Scores are a
/// function of logits W_g x (+ noise).
///
/// Parameters: `weight` [D, U], the W_g, normal with standard deviation 1 / sqrt(D) (the default of
/// V-MoE's router, which truncates at two deviations; this one does not); with learned noise
/// `noise_weight` [D, U], initially zero. Buffer: `selection_bias` [U] if router.bias.rate > 0.
/// Sources: Shazeer et al. 2017 (sparsely-gated MoE), equations 3 to 5 (learned noise); Riquelme et
/// al. 2021 (V-MoE), `routing.py` (fixed noise); DeepSeek-V3, section 2.1.2 (groups, bias).
class ScoreRouter : public Router {
 public:
  ScoreRouter(const ScoreOptions& options, const Context& context)
      : ScoreRouter(options, context, /*has_weight=*/true) {}

  Routing route(const torch::Tensor& x_TD, const TokenContext& context) override;
  /// Updates the selection bias b of each unit: b += rate * sign(mean count - count), where counts
  /// are a step's choices before capacity, over all ranks. Skipped steps do not count.
  void after_step(Communicator& world) override;
  bool has_noise() const override { return options_.noise != RouterNoise::kNone; }
  /// False with router.bias.rate > 0.
  bool needs_balance_loss() const override {
    return takes_balance_losses() && options_.bias.rate == 0;
  }
  /// With a bias that is updated: none. With noise: the importance and load losses of V-MoE and
  /// Sparse-MLP (Riquelme et al. 2021; Lou et al. 2021). Without noise: Switch Transformer's (Fedus
  /// et al. 2022). With `scores_only`, in layers that compute every token by all units: the loss of
  /// the document "Adaptive Sparse Attention MoE Architecture".
  std::vector<UsualLoss> usual_losses(bool scores_only) const override;
  bool weights_sum_to_one() const override {
    return options_.weights.normalise != Normalise::kNone && options_.weights.scale == 1.0;
  }
  void check(const std::string& path, Problems& problems) const override;
  void check_scores_only(const std::string& path, Problems& problems) const override;
  void check_without_capacity(const std::string& path, Problems& problems) const override;

 protected:
  /// `has_weight`: false if a subclass overrides logits() and needs no W_g.
  ScoreRouter(const ScoreOptions& options, const Context& context, bool has_weight);
  /// Returns the logits [T, U]. Default: W_g x.
  virtual torch::Tensor logits(const torch::Tensor& x_TD) const;
  /// Returns the scores [T, U], in [0, inf); a whole row may underflow to 0. Default: softmax.
  virtual torch::Tensor score(const torch::Tensor& logits_TU) const;
  /// True if a token's scores sum to 1.
  virtual bool scores_sum_to_one() const { return true; }
  /// Returns the kind of scores if `score` is the softmax or the sigmoid and `selection` is not
  /// overridden: a GPU then computes scores and choices in one kernel. Default: nullopt.
  virtual std::optional<RouterScore> fused_kernel_score() const { return std::nullopt; }
  /// Returns the values whose top k are a token's choices, [T, U], detached: the noisy logits or,
  /// with a bias or a group limit, the scores (+ bias), with -inf outside its groups.
  virtual torch::Tensor selection(const Routing& routing, const torch::Tensor& score_TU,
                                  const TokenContext& context) const;

 private:
  void add_noise(const torch::Tensor& x_TD, const TokenContext& context, Routing& routing) const;
  /// Sets choices, their weights and scores; returns the scores of all units.
  torch::Tensor choose(const TokenContext& context, Routing& routing) const;
  torch::Tensor choose_fused(RouterScore kind, Routing& routing) const;
  void count(const Routing& routing, const TokenContext& context);

  ScoreOptions options_;
  torch::Tensor weight_DU_, noise_weight_DU_, bias_U_;
  torch::Tensor count_U_;  ///< int64, choices of counted_step_
  int64_t counted_step_ = -1;
};

/// Returns the combine weights [T, K] of the chosen units unit_TK, before capacity and
/// CombineWeights::scale. score_TU: the non-negative scores of logits_TU.
torch::Tensor combine_weights(const torch::Tensor& score_TU, const torch::Tensor& logits_TU,
                              const torch::Tensor& unit_TK, Normalise normalise);

/// Sets scores outside the `keep` best groups to -inf; `count` divides U. `k`: units per token.
torch::Tensor limit_to_groups(const torch::Tensor& score_TU, const GroupLimit& groups, int64_t k);

}  // namespace shoal
