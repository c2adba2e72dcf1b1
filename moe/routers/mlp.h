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

/// Top-k routing by the softmax of an MLP's logits, fc2(relu(fc1(x))). The defaults, k = 1 and no
/// noise, are the router of the adaptive sparse-attention denoiser, component 3.
///
/// Parameters: the linear layers fc1 and fc2, each uniform in +-1 / sqrt(its inputs).
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
    /// Hidden width for tokens of this width: the option, or its default.
    int64_t hidden_width(int64_t width) const;
  };

  MlpRouter(const Options& options, const Context& context);
  /// The losses of the denoiser with hard mixing: even use of units and decided tokens.
  std::vector<UsualLoss> usual_losses(bool scores_only) const override;

 protected:
  torch::Tensor logits(const torch::Tensor& x_TD) const override;
  std::optional<RouterScore> fused_score() const override { return RouterScore::kSoftmax; }

 private:
  Linear fc1_{nullptr}, fc2_{nullptr};
};

}  // namespace shoal
