#include "moe/routers/mlp.h"

#include <algorithm>

// T tokens  D width  U units
namespace shoal {

int64_t MlpRouter::Options::hidden_width(int64_t width) const {
  return hidden.value_or(std::max<int64_t>(1, width / 2));
}

MlpRouter::MlpRouter(const Options& options, const Context& context)
    : ScoreRouter(options.scores, context, /*has_weight=*/false) {
  const int64_t width = context.width, hidden = options.hidden_width(width);
  const auto add = [&](const char* name, int64_t in, int64_t out) {
    const Init init = Init::fan_in_uniform(in);
    return register_module(name, Linear(in, out, context.tensor_options, init, init));
  };
  fc1_ = add("fc1", width, hidden);
  fc2_ = add("fc2", hidden, num_units());
}

std::vector<UsualLoss> MlpRouter::usual_losses(bool scores_only) const {
  if (scores_only || !needs_balance_loss()) return ScoreRouter::usual_losses(scores_only);
  return {{"switch", 0.01, ScopeKind::kGlobal}, {"entropy", 0.01, ScopeKind::kGlobal}};
}

torch::Tensor MlpRouter::logits(const torch::Tensor& x_TD) const {
  return fc2_->forward(fc1_->forward(x_TD.to(fc1_->weight.scalar_type())).relu());
}

namespace {
const Registration<Router, MlpRouter> registered_mlp_router{
    "mlp", "the k units with the highest softmax scores of a two-layer MLP"};
}

}  // namespace shoal
