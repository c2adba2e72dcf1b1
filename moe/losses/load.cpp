
#include <cmath>
#include <numbers>

#include "moe/kernels/row_top_k.h"
#include "moe/losses/balance_loss.h"
#include "runtime/device/autograd_function.h"

// T tokens  U units  K choices per token  S scope instances
namespace shoal {
namespace {

/// The chance of each logit to come, with other noise of the same deviation everywhere, above the
/// noisy logit of the token's unit `threshold_unit_T1`: half of erfc((noisy - logit) / sigma / √2).
struct ChanceAbove : torch::autograd::Function<ChanceAbove> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& noisy_TU,
                               const torch::Tensor& logits_TU,
                               const torch::Tensor& threshold_unit_T1, double noise_std) {
    const double scale = 1.0 / (noise_std * std::sqrt(2.0));
    const torch::Tensor z_TU = noisy_TU.gather(1, threshold_unit_T1).sub(logits_TU).mul_(scale);
    ctx->save_for_backward({z_TU, threshold_unit_T1});
    ctx->saved_data["scale"] = scale;
    return torch::special_erfc(z_TU).mul_(0.5);
  }
  // d erfc(z) / dz = -2 / sqrt(pi) exp(-z^2).
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_second_derivatives();
    const variable_list saved = ctx->get_saved_variables();
    const double scale = ctx->saved_data["scale"].toDouble();
    const torch::Tensor logit_grad_TU =
        saved[0].square().neg_().exp_().mul_(grads[0]).mul_(scale * std::numbers::inv_sqrtpi);
    torch::Tensor noisy_grad_TU = torch::zeros_like(logit_grad_TU);
    noisy_grad_TU.scatter_(1, saved[1], logit_grad_TU.sum(1, /*keepdim=*/true).neg_());
    return {noisy_grad_TU, logit_grad_TU, torch::Tensor(), torch::Tensor()};
  }
};

/// CV^2 of the units' load, the chance that a fresh draw of the noise puts the unit among the k
/// best, summed over tokens: p = 1 - Phi((threshold - logit) / sigma), where the threshold is the
/// k-th highest noisy logit of the token, also where groups or a bias choose others. Unlike in
/// Shazeer et al. 2017 the unit's own logit is not excluded from the threshold. Gradients flow
/// through both.
/// Source: Lou et al. 2021 (Sparse-MLP), equations 12 to 14; Riquelme et al. 2021, `routing.py`.
class LoadLoss : public BalanceLoss {
 public:
  using Options = BalanceLossOptions;
  explicit LoadLoss(const Options& options) : BalanceLoss("load", options) {}

  bool evens_out_loads() const override { return true; }
  torch::Tensor value_S(const Routing& routing, const Scope& scope) const override {
    TORCH_CHECK(routing.has_noise(), "the load loss needs a routing with noise");
    const int64_t k = routing.choices_per_token();
    const torch::Tensor best_TK = top_k(routing.noisy_TU.detach(), k);
    const torch::Tensor threshold_unit_T1 = best_TK.narrow(1, k - 1, 1);
    if (!routing.noise_std_TU.defined()) {
      return squared_variation(scope.sum(ChanceAbove::apply(routing.noisy_TU, routing.logits_TU,
                                                            threshold_unit_T1, routing.noise_std)));
    }
    const torch::Tensor distance_TU =
        routing.noisy_TU.gather(1, threshold_unit_T1) - routing.logits_TU;
    const torch::Tensor z_TU = distance_TU / (routing.noise_std_TU * std::sqrt(2.0));
    return squared_variation(scope.sum(torch::special_erfc(z_TU) * 0.5));
  }

  std::string objection(const Router& router) const override {
    if (router.has_noise()) return "";
    return "the load loss needs noise in the router; set router.noise to gaussian or learned, or "
           "leave the loss out";
  }
};

const Registration<BalanceLoss, LoadLoss> registered_load_loss{
    "load", "squared coefficient of variation of the units' expected number of tokens"};

}  // namespace
}  // namespace shoal
