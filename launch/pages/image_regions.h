#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/pages/picture.h"

namespace shoal {

/// What a patch of an image looks like, of the mean of its channels in [0, 1]: the mean over the
/// patch (brightness), the standard deviation within it (contrast), the mean length of the gradient
/// by central differences in the image, one-sided at its border, a pixel (edges), and where its
/// middle lies from the top, 0, to the bottom, 1 (vertical).
using RegionFeatures = std::array<double, 4>;
inline constexpr std::array kRegionFeatures{"brightness", "contrast", "edges", "vertical"};

/// Of rows * columns square patches from the top left corner, row by row.
std::vector<RegionFeatures> region_features(const Picture& image, int64_t rows, int64_t columns);

/// Which regions each unit of a layer was chosen for.
struct RegionTable {
  struct Unit {
    int64_t patches = 0;
    RegionFeatures mean{};
    /// From the mean of all patches, in standard deviations of all patches; 0 where they are alike.
    RegionFeatures difference{};
  };
  int64_t patches = 0;
  RegionFeatures mean{}, deviation{};  ///< of all patches
  std::vector<Unit> units;             ///< the last entry: patches routed to no unit

  /// Of the patches, 0 without any.
  double share(const Unit& unit) const;
};

/// Adds up a RegionTable.
class RegionCounter {
 public:
  explicit RegionCounter(int64_t num_units);
  /// unit_N: -1 for no unit.
  void add(const std::vector<int64_t>& unit_N, const std::vector<RegionFeatures>& features_N);
  RegionTable table() const;

 private:
  /// Mean and sum of squared distances from it, updated patch by patch.
  struct Moments {
    int64_t count = 0;
    RegionFeatures mean{}, square{};
    void add(const RegionFeatures& features);
  };
  Moments all_;
  std::vector<Moments> unit_;  ///< [U + 1]
};

}  // namespace shoal
