#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/pages/picture.h"

namespace shoal {

/// Features of a patch, from the mean of the image's channels in [0, 1]: mean over the patch
/// (brightness), standard deviation within it (contrast), mean length of the gradient, by central
/// differences in the image, one-sided at its border, per pixel (edges), and position of its centre
/// between the top, 0, and the bottom, 1 (vertical).
using RegionFeatures = std::array<double, 4>;
inline constexpr std::array kRegionFeatures{"brightness", "contrast", "edges", "vertical"};

/// Features of rows * columns square patches from the top left corner, row by row.
std::vector<RegionFeatures> region_features(const Picture& image, int64_t rows, int64_t columns);

/// Features of the regions that choose each unit of a layer.
struct RegionTable {
  struct Unit {
    int64_t patches = 0;
    RegionFeatures mean{};
    /// Difference from the mean of all patches, in their standard deviations; 0 if all are equal.
    RegionFeatures difference{};
  };
  int64_t patches = 0;
  RegionFeatures mean{}, deviation{};  ///< of all patches
  std::vector<Unit> units;             ///< the last entry is for patches without a unit

  /// The unit's share of the patches; 0 if there are none.
  double share(const Unit& unit) const;
};

/// Computes a RegionTable.
class RegionCounter {
 public:
  explicit RegionCounter(int64_t num_units);
  /// Adds patches. unit_N: -1 for no unit.
  void add(const std::vector<int64_t>& unit_N, const std::vector<RegionFeatures>& features_N);
  RegionTable table() const;

 private:
  /// Running mean and sum of squared deviations (Welford).
  struct Moments {
    int64_t count = 0;
    RegionFeatures mean{}, square{};
    void add(const RegionFeatures& features);
  };
  Moments all_;
  std::vector<Moments> unit_;  ///< [U + 1]
};

}  // namespace shoal
