#include <cmath>

#include "moe/balance_loss.h"
#include "moe/top_k.h"

// T tokens  U units  K choices per token  S scope instances
namespace shoal {
namespace {

/// CV^2 of the units' load, the chance that a fresh draw of the noise puts the unit among the k
/// best, summed over tokens: p = 1 - Phi((threshold - logit) / sigma), where the threshold is the
/// k-th highest noisy logit of the token, also where groups or a bias choose others. Unlike in
/// Shazeer et al. 2017 the unit's own logit is not excluded from the threshold. Gradients flow
/// through both.
/// Source: Lou et al. 2021 (Sparse-MLP), equations 12 to 14; Riquelme et al. 2021, `routing.py`.
class LoadLoss : public BalanceLoss {
 public:
  using Options = BalanceLossOptions;
  explicit LoadLoss(const Options& options) : BalanceLoss(options) {}

  std::string_view name() const override { return "load"; }

  torch::Tensor value_S(const Routing& routing, const Scope& scope) const override {
    TORCH_CHECK(routing.has_noise(), "the load loss needs a routing with noise");
    const int64_t k = routing.choices_per_token();
    const torch::Tensor best_TK = top_k(routing.noisy_TU.detach(), k);
    const torch::Tensor threshold_T1 = routing.noisy_TU.gather(1, best_TK.narrow(1, k - 1, 1));
    const torch::Tensor distance_TU = threshold_T1 - routing.logits_TU;
    const torch::Tensor z_TU = routing.noise_std_TU.defined()
                                   ? distance_TU / (routing.noise_std_TU * std::sqrt(2.0))
                                   : distance_TU * (1.0 / (routing.noise_std * std::sqrt(2.0)));
    return squared_variation(scope.sum(torch::special_erfc(z_TU) * 0.5));
  }

  std::string objection(const Router& router) const override {
    if (router.has_noise()) return "";
    return "the load loss needs noise in the router; set router.noise to gaussian or learned, or "
           "leave the loss out";
  }
};

const Registration<BalanceLoss, LoadLoss> registered_load_loss{
    "load", "squared variation of the units' expected number of tokens"};

}  // namespace
}  // namespace shoal
