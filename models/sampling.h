#pragma once

#include <cstdint>
#include <span>

// V vocabulary
namespace shoal {

/// How the next token is sampled from logits; by default from the full softmax distribution.
struct Sampling {
  double temperature = 1.0;  ///< divides the logits; 0: greedy
  int64_t top_k = 0;         ///< keeps the k highest logits; 0: all
  double top_p = 1.0;        ///< then keeps the smallest set of tokens whose probabilities reach p
};

/// Samples a token id by the draw `uniform` in (0, 1). Computed in float64; equal logits rank by
/// id. Throws Error (exit 30) if a logit is NaN or the highest is not finite.
/// Source: Fan et al. 2018 (top-k); Holtzman et al. 2020 (nucleus, top-p).
int64_t choose_token(std::span<const double> logit_V, const Sampling& sampling, double uniform);

}  // namespace shoal
