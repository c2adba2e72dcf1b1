#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "runtime/options/config.h"
#include "runtime/random/step_context.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {

/// Options for mixing training images and their labels. Each step uses Mixup or CutMix, with one
/// mixing coefficient for all its images.
struct ImageMixOptions {
  double mixup = 0.0;
  double cutmix = 0.0;
  double probability = 1.0;
  double cutmix_share = 0.5;

  static constexpr auto fields() {
    return std::tuple{
        field("mixup", &ImageMixOptions::mixup,
              "alpha of Mixup, a mean of two images with a weight from Beta(alpha, alpha); 0: none",
              in_range(0, 100)),
        field("cutmix", &ImageMixOptions::cutmix,
              "alpha of CutMix, which pastes a rectangle of another image, its share of the area "
              "drawn from Beta(alpha, alpha); 0: none",
              in_range(0, 100)),
        field("probability", &ImageMixOptions::probability, "probability that a step mixes images",
              in_range(0, 1)),
        field("cutmix_share", &ImageMixOptions::cutmix_share,
              "fraction of mixing steps with CutMix, if mixup and cutmix are > 0", in_range(0, 1))};
  }
};

/// The mixing of one step.
struct ImageMix {
  double own_share = 1.0;  ///< weight of an image's own pixels and label
  /// Rectangle taken from the other image in CutMix, [top, bottom) x [left, right).
  struct Rectangle {
    int64_t top = 0, bottom = 0, left = 0, right = 0;
  };
  std::optional<Rectangle> rectangle = {};  ///< nullopt: Mixup
};

/// Draws a step's mixing, keyed by seed and step only, so equal on all ranks and micro-steps;
/// nullopt: no mixing. `height`, `width`: pixels. With CutMix own_share is the share of pixels
/// outside the rectangle. Sources: Zhang et al. 2018, Yun et al. 2019; timm's Mixup, mode `batch`.
std::optional<ImageMix> draw_image_mix(const ImageMixOptions& options, uint64_t seed, int64_t step,
                                       int64_t height, int64_t width);

/// Returns for each sample the row of value_b of its mixing partner. Partners are the i-th sample
/// and the i-th sample from the end of a routing group (samples that routers compare); the middle
/// sample of an odd group is its own partner. Deviation: timm pairs samples of a rank's whole
/// batch. TORCH_CHECK that b is a multiple of `samples_per_group`.
torch::Tensor partners(const torch::Tensor& value_b, int64_t samples_per_group);

/// Mixes each image with that of its partner in the routing group.
torch::Tensor mixed(const torch::Tensor& image_bCHW, const ImageMix& mix,
                    int64_t samples_per_group);

}  // namespace shoal
