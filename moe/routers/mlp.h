#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "moe/routing/score_router.h"
#include "runtime/base/size_limits.h"
#include "runtime/module/linear.h"

// T tokens  D width  U units
namespace shoal {

/// Top-k routing by the softmax of a two-layer MLP's logits, fc2(relu(fc1(x))). The defaults, k = 1
/// and no noise, are those of "Adaptive Sparse Attention MoE Architecture", component 3.
///
/// Parameters: weights and biases of the layers fc1 and fc2, uniform in ±1 / sqrt(inputs).
class MlpRouter : public ScoreRouter {
 public:
  struct Options {
    std::optional<int64_t> hidden;
    ScoreOptions scores = {.k = 1, .noise = RouterNoise::kNone};

    static constexpr auto fields() {
      return std::tuple{
          field("hidden", &Options::hidden, "hidden width; auto: half the width of the tokens",
                in_range(1, kMostWidth), unset_word("auto")),
          inlined(&Options::scores)};
    }
    /// Returns the hidden width for tokens of `width`: the option, or half the width.
    int64_t hidden_width(int64_t width) const;
  };

  MlpRouter(const Options& options, const Context& context);
  /// Returns `switch` (even loads) and `entropy` (peaked scores) or, if scores_only (all units
  /// compute each token, weighted by its scores), `kl_uniform`; none with a selection bias.
  std::vector<UsualLoss> usual_losses(bool scores_only) const override;

 protected:
  torch::Tensor logits(const torch::Tensor& x_TD) const override;
  std::optional<RouterScore> fused_kernel_score() const override { return RouterScore::kSoftmax; }

 private:
  Linear fc1_{nullptr}, fc2_{nullptr};
};

}  // namespace shoal
