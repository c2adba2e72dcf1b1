#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace shoal {

/// A layer of a ReLU MLP, in the order of the forward pass.
struct RegionLayer {
  int64_t width = 0;  ///< neurons
  /// Number of input directions that the rows of its mask span; nullopt: the mask sets no limit.
  std::optional<int64_t> span = std::nullopt;
};

/// What limits the input directions in which a layer's neurons can bend.
enum class RegionMixing {
  kNone,      ///< each layer is limited to the span of its own mask
  kPermuted,  ///< layers are permuted: the limit of layer l is the sum of spans of layers 1 to l
};

/// Lower bound on the number of linear regions of a ReLU MLP, a measure of its expressivity.
struct RegionBound {
  std::vector<int64_t> directions;  ///< k of each layer, see bound_regions
  double log10_regions = 0.0;
  /// First layer, counted from 1, from which on no mask limits the directions; nullopt: none.
  std::optional<int64_t> layers_to_catch_up;
};

/// Bounds the number of regions by the product over the layers of sum_{j <= k} C(width, j), where k
/// is the least of the width, the MLP's `inputs` and the directions that masks allow. Source:
/// PA-DST (Efficient Dynamic Structured Sparse Training with Learned Shuffles), section 3,
/// equations 1 to 11, after Montúfar et al. 2014.
RegionBound bound_regions(int64_t inputs, const std::vector<RegionLayer>& layers,
                          RegionMixing mixing);

}  // namespace shoal
