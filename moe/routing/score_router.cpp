#include "moe/routing/score_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "moe/kernels/count_ids.h"
#include "moe/kernels/logit_functions.h"
#include "moe/kernels/row_top_k.h"
#include "runtime/device/autograd_function.h"
#include "runtime/options/config.h"
#include "runtime/random/random.h"

// T tokens  D width  U units  K choices  G groups of units
namespace shoal {
namespace {

constexpr double kLeastNoise = 1e-2;

/// x W, of an x of fewer bits in W's dtype: keeps x as it is, not what it is widened to.
struct LogitProduct : torch::autograd::Function<LogitProduct> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x_TD,
                               const torch::Tensor& weight_DU) {
    // The transpose, copied: both products with a matrix this narrow run several times as fast.
    const torch::Tensor weight_UD = weight_DU.t().contiguous();
    ctx->save_for_backward({x_TD, weight_UD});
    return torch::mm(x_TD.to(weight_UD.scalar_type()), weight_UD.t());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    const torch::Tensor &x_TD = saved[0], &weight_UD = saved[1];
    torch::Tensor x_grad_TD, weight_grad_DU;
    if (ctx->needs_input_grad(0)) {
      x_grad_TD = torch::mm(grads[0], weight_UD).to(x_TD.scalar_type());
    }
    if (ctx->needs_input_grad(1)) {
      weight_grad_DU = torch::mm(x_TD.to(weight_UD.scalar_type()).t(), grads[0]);
    }
    return {x_grad_TD, weight_grad_DU};
  }
};

}  // namespace

void check_combine_weights(const CombineWeights& weights, int64_t k, Problems& problems) {
  if (k != 1) return;
  const std::string reason = " makes every weight 1 when k is 1, and the router learns nothing; ";
  if (weights.normalise != Normalise::kNone) {
    problems.add("weights.normalise",
                 std::string(enum_name(weights.normalise)) + reason + "use none");
  }
  if (weights.renorm_after_drop) {
    problems.add("weights.renorm_after_drop", "true" + reason + "use false");
  }
}

ScoreRouter::ScoreRouter(const ScoreOptions& options, const Context& context, bool has_weight)
    : Router(options.k, context), options_(options) {
  const double std_dev = 1.0 / std::sqrt(static_cast<double>(context.width));
  const std::array<int64_t, 2> sizes{context.width, num_units()};
  if (has_weight) {
    weight_DU_ = add_parameter("weight", sizes, context.tensor_options, Init::normal(std_dev));
  }
  if (options.noise == RouterNoise::kLearned) {
    noise_weight_DU_ = add_parameter("noise_weight", sizes, context.tensor_options, Init::zeros());
  }
  if (options.bias.rate > 0) {
    bias_U_ = add_buffer("selection_bias", {num_units()}, context.tensor_options, Init::zeros());
  }
}

void ScoreRouter::check(const std::string& path, Problems& problems) const {
  const GroupLimit& groups = options_.groups;
  Router::check(path, problems);
  if (groups.keep > groups.count) {
    problems.add(path + ".groups.keep",
                 fmt::format("a token may be routed to {} groups, but there are only {}",
                             groups.keep, groups.count));
  } else if (num_units() % groups.count != 0) {
    problems.add(path + ".groups.count", fmt::format("{} units cannot be cut into {} equal groups",
                                                     num_units(), groups.count));
  } else if (groups.count > 1) {
    const int64_t size = num_units() / groups.count;
    if (options_.k <= num_units() && options_.k > groups.keep * size) {
      problems.add(path + ".groups.keep",
                   fmt::format("a token is routed to {} units, but {} of {} groups hold only {}; "
                               "raise keep or lower k",
                               options_.k, groups.keep, groups.count, groups.keep * size));
    }
    if (groups.score == GroupScore::kTop2Sum && size < 2) {
      problems.add(path + ".groups.score", "top2_sum needs groups of two units or more; use max");
    }
  }
}

void ScoreRouter::check_scores_only(const std::string& path, Problems& problems) const {
  Router::check_scores_only(path, problems);
  const auto refuse = [&](bool is_set, const char* key, const char* instead) {
    if (!is_set) return;
    problems.add(path + key, std::string("has no effect where all units compute every token, "
                                         "weighted by its scores; use ") +
                                 instead);
  };
  refuse(has_noise(), ".noise", "none");
  refuse(options_.weights.normalise != Normalise::kNone, ".weights.normalise", "none");
  refuse(options_.weights.scale != 1.0, ".weights.scale", "1");
  refuse(options_.groups.count > 1, ".groups.count", "1");
  refuse(options_.bias.rate > 0, ".bias.rate", "0");
}

void ScoreRouter::check_without_capacity(const std::string& path, Problems& problems) const {
  if (!options_.weights.renorm_after_drop) return;
  problems.add(path + ".weights.renorm_after_drop",
               "has no effect in a layer without capacity, which drops nothing; use false");
}

std::vector<UsualLoss> ScoreRouter::usual_losses(bool scores_only) const {
  if (!needs_balance_loss()) return {};
  if (scores_only) return {{"kl_uniform", 0.01, ScopeKind::kGlobal}};
  if (has_noise()) return {{"importance", 0.005}, {"load", 0.005}};
  return {{"switch", 0.01}};
}

torch::Tensor ScoreRouter::logits(const torch::Tensor& x_TD) const {
  return LogitProduct::apply(x_TD, weight_DU_);
}

torch::Tensor ScoreRouter::score(const torch::Tensor& logits_TU) const {
  return row_softmax(logits_TU);
}

torch::Tensor ScoreRouter::selection(const Routing& routing, const torch::Tensor& score_TU,
                                     const TokenContext&) const {
  const bool has_limit = options_.groups.count > 1;
  if (!has_limit && !bias_U_.defined()) return routing.noisy_TU.detach();
  const torch::Tensor selection_TU = bias_U_.defined() ? score_TU + bias_U_ : score_TU;
  return has_limit ? limit_to_groups(selection_TU, options_.groups, options_.k) : selection_TU;
}

void ScoreRouter::add_noise(const torch::Tensor& x_TD, const TokenContext& context,
                            Routing& routing) const {
  routing.noisy_TU = routing.logits_TU;
  if (!context.step.training || !has_noise()) return;
  const Stream stream{context.step.seed, Purpose::kRouterNoise, context.layer,
                      static_cast<uint64_t>(context.step.step)};
  const torch::Tensor noise_TU =
      normal_rows(stream, token_ids(context), num_units(), routing.logits_TU.scalar_type());
  if (options_.noise == RouterNoise::kLearned) {
    routing.noise_std_TU =
        logit_softplus(LogitProduct::apply(x_TD, noise_weight_DU_)) + kLeastNoise;
    routing.noisy_TU = routing.logits_TU + noise_TU * routing.noise_std_TU;
  } else {
    routing.noise_std = 1.0 / static_cast<double>(num_units());
    routing.noisy_TU = routing.logits_TU.add(noise_TU, routing.noise_std);
  }
}

torch::Tensor ScoreRouter::choose(const TokenContext& context, Routing& routing) const {
  const torch::Tensor score_TU = score(routing.noisy_TU);
  const torch::Tensor selection_TU = selection(routing, score_TU.detach(), context);
  routing.choice_TK = top_k(selection_TU, options_.k);
  // Not the first choice's score: a bias or Sinkhorn's scale may put a lower one first.
  torch::Tensor allowed_TU = score_TU.detach();
  if (options_.groups.count > 1) allowed_TU = allowed_TU.masked_fill(selection_TU.isneginf(), 0);
  routing.priority_T = allowed_TU.amax(1);
  routing.weight_TK =
      combine_weights(score_TU, routing.noisy_TU, routing.choice_TK, options_.weights.normalise);
  routing.score_TK = options_.weights.normalise == Normalise::kNone
                         ? routing.weight_TK.detach()
                         : score_TU.detach().gather(1, routing.choice_TK);
  return score_TU;
}

torch::Tensor ScoreRouter::choose_fused(RouterScore kind, Routing& routing) const {
  const FusedChoices choices =
      fused_router(routing.noisy_TU, bias_U_, {options_.k, kind, options_.weights.normalise});
  routing.choice_TK = choices.choice_TK;
  routing.weight_TK = choices.weight_TK;
  routing.score_TK = choices.chosen_score_TK;
  routing.priority_T =
      bias_U_.defined() ? choices.score_TU.detach().amax(1) : choices.chosen_score_TK.select(1, 0);
  routing.count_U = choices.count_U;
  return choices.score_TU;
}

Routing ScoreRouter::route(const torch::Tensor& x_TD, const TokenContext& context) {
  Routing routing;
  routing.num_units = num_units();
  routing.group_offsets = context.group_offsets;
  routing.logits_TU = logits(x_TD);
  add_noise(x_TD, context, routing);
  const std::optional<RouterScore> kind = fused_kernel_score();
  const bool is_fused = kind.has_value() && options_.groups.count == 1 &&
                        can_fuse_router(routing.noisy_TU, options_.k);
  const torch::Tensor score_TU = is_fused ? choose_fused(*kind, routing) : choose(context, routing);
  const torch::Tensor clean_TU = routing.has_noise() ? score(routing.logits_TU) : score_TU;
  routing.prob_TU = scores_sum_to_one()
                        ? clean_TU
                        : clean_TU / (clean_TU.sum(1, /*keepdim=*/true) + kLeastScoreSum);
  routing.unit_TK = routing.choice_TK;
  routing.renorm_after_drop = options_.weights.renorm_after_drop;
  routing.weight_scale = options_.weights.scale;
  count(routing, context);
  return routing;
}

void ScoreRouter::count(const Routing& routing, const TokenContext& context) {
  if (!bias_U_.defined() || !context.step.training || !at::GradMode::is_enabled()) return;
  if (counted_step_ != context.step.step) {
    count_U_ = torch::zeros({num_units()}, routing.choice_TK.options());
    counted_step_ = context.step.step;
  }
  count_U_ +=
      routing.count_U.defined() ? routing.count_U : count_ids(routing.choice_TK, num_units());
}

void ScoreRouter::after_step(Communicator& world) {
  if (!bias_U_.defined()) return;
  TORCH_CHECK(count_U_.defined(), "a router's after_step without a training step");
  const torch::NoGradGuard no_grad;
  all_reduce(world, count_U_);
  // The sign of mean - count, in integers.
  const torch::Tensor sign_U = (count_U_.sum() - count_U_ * num_units()).sign();
  torch::Tensor change_U = sign_U.to(bias_U_.scalar_type()) * options_.bias.rate;
  if (options_.bias.centred) change_U -= change_U.mean();
  bias_U_ += change_U;
  count_U_.reset();
  counted_step_ = -1;
}

torch::Tensor combine_weights(const torch::Tensor& score_TU, const torch::Tensor& logits_TU,
                              const torch::Tensor& unit_TK, Normalise normalise) {
  if (normalise == Normalise::kTopkSoftmax) return logits_TU.gather(1, unit_TK).softmax(1);
  const torch::Tensor score_TK = score_TU.gather(1, unit_TK);
  if (normalise == Normalise::kNone) return score_TK;
  return score_TK / (score_TK.sum(1, /*keepdim=*/true) + kLeastScoreSum);
}

torch::Tensor limit_to_groups(const torch::Tensor& score_TU, const GroupLimit& groups, int64_t k) {
  const int64_t num_tokens = score_TU.size(0), size = score_TU.size(1) / groups.count;
  const torch::Tensor score_TGu = score_TU.reshape({num_tokens, groups.count, size});
  int64_t num_best = 1;
  if (groups.score == GroupScore::kTop2Sum) num_best = 2;
  if (groups.score == GroupScore::kTopkSum) num_best = std::max<int64_t>(1, k / groups.keep);
  const torch::Tensor worth_TG = std::get<0>(score_TGu.topk(num_best, -1)).sum(-1);
  const torch::Tensor kept_Tk = top_k(worth_TG, groups.keep);
  const torch::Tensor is_out_TG =
      torch::ones(worth_TG.sizes(), worth_TG.options().dtype(torch::kBool)).scatter_(1, kept_Tk, 0);
  return score_TGu.masked_fill(is_out_TG.unsqueeze(2), -std::numeric_limits<double>::infinity())
      .reshape(score_TU.sizes());
}

}  // namespace shoal
