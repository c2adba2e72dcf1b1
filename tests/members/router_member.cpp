#include <tuple>

#include "moe/routing/score_router.h"
#include "runtime/module/linear.h"

// T tokens  D width  U units
namespace shoal {
namespace {

/// Scores by the cosine between a token and a direction of each unit. With `looks_ahead` it says
/// that later tokens matter.
class CosineRouter final : public ScoreRouter {
 public:
  struct Options {
    ScoreOptions scores{1, RouterNoise::kNone, {}};
    bool looks_ahead = true;

    static constexpr auto fields() {
      return std::tuple{inlined<Options>(&Options::scores),
                        field("looks_ahead", &Options::looks_ahead, "is no causal router")};
    }
  };
  CosineRouter(const Options& options, const Context& context)
      : ScoreRouter(options.scores, context, /*has_weight=*/false),
        looks_ahead_(options.looks_ahead) {
    directions_ = register_module("directions",
                                  Linear(context.width, context.num_units, context.tensor_options,
                                         Init::fan_in_uniform(context.width), std::nullopt));
  }
  bool is_causal() const override { return !looks_ahead_; }
  std::string causal_hint() const override { return "looks_ahead false"; }

 protected:
  torch::Tensor logits(const torch::Tensor& x_TD) const override {
    const torch::Tensor x = x_TD.to(directions_->weight.scalar_type());
    return directions_->forward(x / x.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-6));
  }

 private:
  bool looks_ahead_;
  Linear directions_{nullptr};
};

const Registration<Router, CosineRouter> registered_cosine_router{"cosine", "for this test"};

}  // namespace
}  // namespace shoal
