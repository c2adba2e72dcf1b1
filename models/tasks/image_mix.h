#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "runtime/options/config.h"
#include "runtime/random/step_context.h"

// b samples on this rank  C channels  H height  W width
namespace shoal {

/// Mixing of training images and, equally, their labels. A step mixes by Mixup or by CutMix, with
/// one share for all its images.
struct ImageMixOptions {
  double mixup = 0.0;
  double cutmix = 0.0;
  double probability = 1.0;
  double cutmix_share = 0.5;

  static constexpr auto fields() {
    return std::tuple{
        field("mixup", &ImageMixOptions::mixup,
              "a of the share's distribution Beta(a, a) in Mixup, the mean of two images; 0: none",
              in_range(0, 100)),
        field("cutmix", &ImageMixOptions::cutmix,
              "the same of CutMix, which pastes a rectangle of the other image; 0: none",
              in_range(0, 100)),
        field("probability", &ImageMixOptions::probability, "of a step to mix at all",
              in_range(0, 1)),
        field("cutmix_share", &ImageMixOptions::cutmix_share,
              "of the mixing steps that do CutMix, where both are chosen", in_range(0, 1))};
  }
};

/// The mix of one step.
struct ImageMix {
  double own_share = 1.0;  ///< share of an image's own pixels and label
  /// For CutMix, the rectangle taken from the other image, [top, bottom) x [left, right).
  struct Rectangle {
    int64_t top = 0, bottom = 0, left = 0, right = 0;
  };
  std::optional<Rectangle> rectangle = {};  ///< nullopt: Mixup
};

/// Draws a step's mix from seed and step alone, so equal on all ranks and in all micro-steps;
/// nullopt for a step without mixing. CutMix's share is that of the pixels outside its rectangle.
/// Source: Zhang et al. 2018 and Yun et al. 2019, in the form of timm's Mixup with `mode: batch`.
std::optional<ImageMix> draw_image_mix(const ImageMixOptions& options, uint64_t seed, int64_t step,
                                       int64_t height, int64_t width);

/// The partner of each sample: the i-th of a routing group is mixed with the i-th from its end, the
/// middle one of an odd group with itself. Row b of the result is the partner's row. b must be a
/// multiple of `samples_per_group`, else TORCH_CHECK. timm pairs within a rank's whole batch, which
/// would depend on the number of ranks.
torch::Tensor partners(const torch::Tensor& value_b, int64_t samples_per_group);

/// Applies a mixing to images within each routing group.
torch::Tensor mixed(const torch::Tensor& image_bCHW, const ImageMix& mix,
                    int64_t samples_per_group);

}  // namespace shoal
