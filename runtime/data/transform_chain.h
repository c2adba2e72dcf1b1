#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/data/pixel_transform.h"
#include "runtime/options/config.h"
#include "runtime/options/registry.h"

namespace shoal {

/// Probability of applying a transform: one for all views (copies of an image that are augmented
/// independently), `0.5`, or one for each, `{views: [1, 0.1]}`.
struct ViewProbability {
  static constexpr std::string_view kShortKey = "all";  ///< key that a plain number sets
  double all = 1.0;
  std::vector<double> views = {};

  static constexpr auto fields() {
    return std::tuple{
        field("all", &ViewProbability::all, "probability of the transform, in every view",
              in_range(0, 1)),
        field("views", &ViewProbability::views,
              "one probability per view, instead of `all`; [] = `all`", in_range(0, 1))};
  }
  /// Refuses a recipe that sets both.
  void validate(Problems& problems) const;
  double of(int64_t view) const {
    return views.empty() ? all : views.at(static_cast<size_t>(view));
  }
};

/// An entry of the recipe's list `data.augment.transforms`.
struct TransformOptions {
  Choice<PixelTransform> transform;
  ViewProbability probability;

  static constexpr auto fields() {
    return std::tuple{inlined(&TransformOptions::transform),
                      field("probability", &TransformOptions::probability,
                            "with which it acts: a number, or {views: [one per view]}")};
  }
};

/// The image transforms of a recipe, applied one after the other.
class TransformChain {
 public:
  /// Throws: ConfigError at `data.augment.transforms[i]` if a transform does not support images of
  /// `channels` channels.
  TransformChain(const std::vector<TransformOptions>& options, int64_t channels,
                 const PixelTransform::Context& context);

  /// Changes the image in place. A transform's random numbers are keyed by its name and its index
  /// among entries of the same name, so that other entries do not change them.
  void apply(EditedImage& image, const SampleView& view) const;

 private:
  struct Link {
    std::shared_ptr<const PixelTransform> transform;
    ViewProbability probability;
    uint64_t key;
  };
  std::vector<Link> links_;
};

/// Throws: ConfigError at `data.augment.transforms[i].probability.views` unless that list is empty
/// or has `num_views` entries, one for each view of a training image.
void require_views(const std::vector<TransformOptions>& options, int64_t num_views);

}  // namespace shoal
