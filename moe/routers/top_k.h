#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "moe/combine_weights.h"
#include "moe/router.h"

// T tokens  D width  U units  K choices
namespace shoal {

enum class RouterNoise {
  kNone,
  kGaussian,  ///< N(0, 1 / U^2) on the logits, while training
};

template <>
struct EnumNames<RouterNoise> {
  static constexpr std::array names{std::pair{RouterNoise::kNone, "none"},
                                    std::pair{RouterNoise::kGaussian, "gaussian"}};
};

struct TopKOptions {
  int64_t k = 2;
  RouterNoise noise = RouterNoise::kGaussian;
  CombineWeights weights;

  static constexpr auto fields() {
    return std::tuple{field("k", &TopKOptions::k, "units a token visits", at_least(1)),
                      field("noise", &TopKOptions::noise, "noise on the logits while training"),
                      field("weights", &TopKOptions::weights, "how a token's units are weighted")};
  }
  void validate(Problems& problems) const {
    check_combine_weights(weights, k, "weights", problems);
  }
};

/// G(x) = TopK(softmax(W_g x + noise)), noise ~ N(0, 1 / U^2): the standard deviation is 1 / U.
///
/// One parameter, `weight` [D, U], no bias, normal with standard deviation 1 / sqrt(D) (the default
/// of V-MoE's router, which truncates at two deviations; this one does not). The k highest noisy
/// logits are chosen, ties to the lower unit.
/// Source: Lou et al. 2021 (Sparse-MLP), equation 2; Riquelme et al. 2021 (V-MoE), `routing.py`.
class TopKRouter : public Router {
 public:
  using Options = TopKOptions;
  TopKRouter(const Options& options, const Context& context);

  Routing route(const torch::Tensor& x_TD, const TokenContext& context) override;
  int64_t units_per_token() const override { return options_.k; }
  double noise_std() const override;
  void check(const std::string& path, Problems& problems) const override;

 private:
  Options options_;
  int64_t num_units_;
  torch::Tensor weight_DU_;
};

}  // namespace shoal
