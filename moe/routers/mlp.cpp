#include <algorithm>
#include <optional>
#include <tuple>

#include "moe/routing/score_router.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/fan_in_init.h"
#include "runtime/module/linear.h"

// T tokens  D width  U units
namespace shoal {
namespace {

/// Top-k routing by the softmax of an MLP's logits, fc2(relu(fc1(x))). With k = 1 and no noise, the
/// defaults, the router of the adaptive sparse-attention denoiser, component 3.
///
/// Parameters: those of the linear layers fc1 and fc2, each uniform in +-1 / sqrt(its inputs).
class MlpRouter : public ScoreRouter {
 public:
  struct Options {
    std::optional<int64_t> hidden;
    ScoreOptions scores = {.k = 1, .noise = RouterNoise::kNone};

    static constexpr auto fields() {
      return std::tuple{
          field("hidden", &Options::hidden, "hidden width, auto: half the width of the tokens",
                in_range(1, kMostWidth), unset_word("auto")),
          inlined(&Options::scores)};
    }
  };

  MlpRouter(const Options& options, const Context& context)
      : ScoreRouter(options.scores, context, /*has_weight=*/false) {
    const int64_t width = context.width;
    const int64_t hidden = options.hidden.value_or(std::max<int64_t>(1, width / 2));
    const auto add = [&](const char* name, int64_t in, int64_t out) {
      const Init init = fan_in_uniform(in);
      return register_module(name, Linear(in, out, context.tensor_options, init, init));
    };
    fc1_ = add("fc1", width, hidden);
    fc2_ = add("fc2", hidden, num_units());
  }

 protected:
  torch::Tensor logits(const torch::Tensor& x_TD) const override {
    return fc2_->forward(fc1_->forward(x_TD.to(fc1_->weight.scalar_type())).relu());
  }
  std::optional<RouterScore> fused_score() const override { return RouterScore::kSoftmax; }

 private:
  Linear fc1_{nullptr}, fc2_{nullptr};
};

const Registration<Router, MlpRouter> registered_mlp_router{
    "mlp", "the k units of the highest softmax score of a two-layer MLP"};

}  // namespace
}  // namespace shoal
