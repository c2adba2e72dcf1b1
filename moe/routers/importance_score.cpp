#include "moe/routers/importance_score.h"

#include "moe/kernels/row_top_k.h"
#include "runtime/base/exact_share.h"

// T tokens  U units
namespace shoal {

std::vector<UsualLoss> ImportanceScoreRouter::usual_losses(bool scores_only) const {
  const bool is_noiseless = needs_balance_loss() && !scores_only && !has_noise();
  if (is_noiseless) return {{"importance", 0.005}};
  return TopKRouter::usual_losses(scores_only);
}

Routing ImportanceScoreRouter::route(const torch::Tensor& x_TD, const TokenContext& context) {
  Routing routing = TopKRouter::route(x_TD, context);
  const double share = context.step.training ? drop_ : eval_drop_;
  if (share == 0.0) return routing;
  const Decimal exact = decimal_of(share);
  const std::vector<int64_t>& offsets = context.group_offsets;
  std::vector<int64_t> counts;
  for (size_t g = 0; g + 1 < offsets.size(); ++g) {
    counts.push_back(floor_share(offsets[g + 1] - offsets[g], exact));
  }
  const torch::Tensor dropped_T = mark_lowest(routing.priority_T, offsets, counts);
  routing.unit_TK = routing.choice_TK.masked_fill(dropped_T.unsqueeze(1), -1);
  return routing;
}

void ImportanceScoreRouter::check_scores_only(const std::string& path, Problems& problems) const {
  TopKRouter::check_scores_only(path, problems);
  if (drop_ == 0 && eval_drop_ == 0) return;
  problems.add(path + ".drop",
               "has no effect where all units compute every token, weighted by its scores; set "
               "drop and eval_drop to 0");
}

namespace {
const Registration<Router, ImportanceScoreRouter> registered_importance_score_router{
    "importance_score", "top-k routing that drops the least important tokens"};
}

}  // namespace shoal
