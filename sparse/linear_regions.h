#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal {

/// A layer of a ReLU MLP.
struct RegionLayer {
  int64_t width = 0;  ///< neurons
  /// Input directions that the rows of its mask can span; nullopt: all, as those of free masks.
  std::optional<int64_t> span = std::nullopt;
};

/// What limits the directions that a layer's neurons can bend.
enum class RegionMixing {
  kNone,      ///< each layer sees the span of its own mask
  kPermuted,  ///< a permutation in front of each layer adds its span to that of the layers before
};

/// A lower bound of the number of linear regions of a ReLU MLP.
struct RegionBound {
  std::vector<int64_t> directions;  ///< k of each layer
  double log10_regions = 0.0;
  /// Layers until none is limited by its mask; nullopt: some always is.
  std::optional<int64_t> layers_to_catch_up;
};

/// Product over the layers of sum_{j <= k} C(width, j), where k is the least of the width, the
/// inputs of the MLP and the directions that masks leave. Layers count as caught up where masks
/// leave all inputs' directions. Source: PA-DST, section 3, equations 1 to 11, after Montúfar et
/// al. 2014.
RegionBound bound_regions(int64_t inputs, const std::vector<RegionLayer>& layers,
                          RegionMixing mixing);

}  // namespace shoal
