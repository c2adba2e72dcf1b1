#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal {

/// A layer of a ReLU MLP.
struct RegionLayer {
  int64_t width = 0;  ///< neurons
  /// Number of input directions that its rows can span; nullopt: all, for free masks.
  std::optional<int64_t> span = std::nullopt;
};

/// Limits on the directions in which a layer's neurons can bend.
enum class RegionMixing {
  kNone,      ///< each layer is limited to the span of its own mask
  kPermuted,  ///< a permutation before each layer adds its span to those of earlier layers
};

/// A lower bound on the number of linear regions of a ReLU MLP.
struct RegionBound {
  std::vector<int64_t> directions;  ///< k of each layer
  double log10_regions = 0.0;
  /// Number of layers until none is limited by its mask; nullopt: some always is.
  std::optional<int64_t> layers_to_catch_up;
};

/// Product over the layers of sum_{j <= k} C(width, j), where k is the least of the width, the
/// MLP's inputs and the directions that masks allow. A layer has caught up if masks allow all input
/// directions. Source: PA-DST, section 3, equations 1 to 11, after Montúfar et al. 2014.
RegionBound bound_regions(int64_t inputs, const std::vector<RegionLayer>& layers,
                          RegionMixing mixing);

}  // namespace shoal
