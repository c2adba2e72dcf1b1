#pragma once

#include <torch/types.h>

#include <optional>
#include <string_view>

#include "runtime/random/step_context.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {

/// Random streams of ImageNoise, independent of each other: for training, for evaluation, and for
/// training images that baselines are fitted on.
inline constexpr std::string_view kTrainingNoise = "train", kEvaluationNoise = "valid",
                                  kBaselineNoise = "baselines";

/// Gaussian noise on images in [0, 1], which the task `denoise` trains a model to remove.
struct ImageNoise {
  double sigma = 0.0;                ///< standard deviation
  std::optional<double> most_sigma;  ///< each image draws its own from sigma to this; unset: sigma
  bool clamp = true;                 ///< clamp noisy images to [0, 1]

  /// Adds noise, which depends only on step.seed, `stream` and step.sample_b. Keeps the dtype.
  torch::Tensor add_to(const torch::Tensor& clean_bCHW, const StepContext& step,
                       std::string_view stream) const;
};

}  // namespace shoal
