#pragma once

#include <torch/types.h>

#include <optional>
#include <string_view>

#include "runtime/random/step_context.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {

/// Names of ImageNoise's random streams, one for each use: training, evaluation, and the training
/// images that baselines are fitted on.
inline constexpr std::string_view kTrainingNoise = "train", kEvaluationNoise = "valid",
                                  kBaselineNoise = "baselines";

/// Gaussian noise on images in [0, 1].
struct ImageNoise {
  double sigma = 0.0;                ///< standard deviation
  std::optional<double> most_sigma;  ///< if set, an image's sigma is drawn from sigma to this
  bool clamp = true;                 ///< clamps noisy images to [0, 1]

  /// Adds noise, keyed by step.seed, `stream` and step.sample_b. Keeps the images' dtype.
  torch::Tensor add_to(const torch::Tensor& clean_bCHW, const StepContext& step,
                       std::string_view stream) const;
};

}  // namespace shoal
