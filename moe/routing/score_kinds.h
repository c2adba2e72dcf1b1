#pragma once

namespace shoal {

/// The function that turns a router's logits, one per unit (expert), into scores.
enum class RouterScore { kSoftmax, kSigmoid };

/// How the scores of a token's chosen units become its combine weights.
enum class Normalise {
  kNone,         ///< the scores of the chosen units as they are
  kTopkSoftmax,  ///< softmax over the chosen units' logits
  kSum,          ///< scores of the chosen units over their sum
};

/// Added to a sum of scores before dividing by it, since all scores may underflow to 0.
inline constexpr double kLeastScoreSum = 1e-20;

}  // namespace shoal
