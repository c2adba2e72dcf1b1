#pragma once

#include <cstdint>
#include <span>

// V vocabulary
namespace shoal {

/// How a token is chosen from the logits; the defaults sample from the model's distribution.
struct Sampling {
  double temperature = 1.0;  ///< divides the logits; 0: the highest logit (greedy)
  int64_t top_k = 0;         ///< keep the k highest; 0: all
  double top_p = 1.0;  ///< of those keep the fewest, highest first, whose probabilities reach p
};

/// Chooses a token id with `uniform` in (0, 1). Computed in float64; among equal logits the lower
/// id comes first. Throws Error (exit 30) if a logit is NaN or the highest is not finite. Source:
/// Fan et al. 2018 (top-k); Holtzman et al. 2020 (nucleus, top-p).
int64_t choose_token(std::span<const double> logit_V, const Sampling& sampling, double uniform);

}  // namespace shoal
