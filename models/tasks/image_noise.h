#pragma once

#include <torch/types.h>

#include <optional>
#include <string_view>

#include "runtime/random/step_context.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {

/// Streams of ImageNoise, one a use: what is trained on and evaluated, and training images that
/// baselines are fitted on.
inline constexpr std::string_view kTrainingNoise = "train", kEvaluationNoise = "valid",
                                  kBaselineNoise = "baselines";

/// Gaussian noise on images in [0, 1].
struct ImageNoise {
  double sigma = 0.0;                ///< standard deviation
  std::optional<double> most_sigma;  ///< each image's deviation is drawn from sigma to this
  bool clamp = true;                 ///< noisy images, to [0, 1]

  /// Draws depend on step.seed, `stream` and the place in step.sample_b alone. Dtype of the images.
  torch::Tensor add_to(const torch::Tensor& clean_bCHW, const StepContext& step,
                       std::string_view stream) const;
};

}  // namespace shoal
