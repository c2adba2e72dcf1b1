#pragma once

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <tuple>

#include "models/task.h"
#include "runtime/options/config.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {

/// Random streams of noise, independent of each other: for training, for evaluation, and for
/// training images that baselines are fitted on.
inline constexpr std::string_view kTrainingNoise = "train", kEvaluationNoise = "valid",
                                  kBaselineNoise = "baselines";

/// Options of the task `denoise`, which trains a model to remove Gaussian noise from images.
/// Defaults are those of the paper "Adaptive Sparse Attention MoE Architecture".
struct DenoiseOptions {
  double sigma = 0.2;
  std::optional<double> most_sigma = {};
  bool clamp_noisy = true;
  bool clamp_loss = true;
  bool residual = false;

  static constexpr auto fields() {
    return std::tuple{
        field("sigma", &DenoiseOptions::sigma, "standard deviation of the noise", at_least(0)),
        field("most_sigma", &DenoiseOptions::most_sigma,
              "draw each image's standard deviation between sigma and this; auto: sigma for all",
              at_least(0), unset_word("auto")),
        field("clamp_noisy", &DenoiseOptions::clamp_noisy, "clamp noisy images to [0, 1]"),
        field("clamp_loss", &DenoiseOptions::clamp_loss,
              "clamp restored images to [0, 1] before the loss; pixels outside then get no "
              "gradient; evaluations always clamp"),
        field("residual", &DenoiseOptions::residual,
              "the model predicts the noise to subtract, instead of the restored image")};
  }
  void validate(Problems& problems) const {
    if (most_sigma && *most_sigma < sigma) {
      problems.add("most_sigma", fmt::format("{} is below sigma: {}", *most_sigma, sigma));
    }
  }
};

/// Adds Gaussian noise to images in [0, 1]. Each image draws its own standard deviation, from
/// options.sigma to most_sigma. Depends only on step.seed, `stream` and step.sample_b. Keeps the
/// dtype.
torch::Tensor add_noise(const DenoiseOptions& options, const torch::Tensor& clean_bCHW,
                        const StepContext& step, std::string_view stream);

/// Returns the options of a recipe's task. Throws std::logic_error unless the task is `denoise`.
const DenoiseOptions& denoise_options(const Choice<Task>& task);

}  // namespace shoal
