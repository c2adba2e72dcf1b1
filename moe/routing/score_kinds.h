#pragma once

namespace shoal {

/// The function from logits to scores.
enum class RouterScore { kSoftmax, kSigmoid };

enum class Normalise {
  kNone,         ///< the scores of the chosen units as they are
  kTopkSoftmax,  ///< softmax over the chosen units' logits
  kSum,          ///< scores of the chosen units over their sum
};

/// Added to sums of scores before a division: all scores may underflow.
inline constexpr double kLeastScoreSum = 1e-20;

}  // namespace shoal
