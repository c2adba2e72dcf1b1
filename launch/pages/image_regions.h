#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "launch/pages/picture.h"

namespace shoal {

/// Features of an image patch, from the mean of its channels in [0, 1]: brightness, the mean;
/// contrast, the standard deviation; edges, the mean length of the gradient per pixel, by central
/// differences, one-sided at the image's border; vertical, the position of the patch's centre from
/// 0 at the top to 1 at the bottom.
using RegionFeatures = std::array<double, 4>;
inline constexpr std::array kRegionFeatures{"brightness", "contrast", "edges", "vertical"};

/// Features of rows * columns square patches from the top left corner, row by row.
std::vector<RegionFeatures> region_features(const Picture& image, int64_t rows, int64_t columns);

/// Features of the image patches that a layer routes to each of its units (experts).
struct RegionTable {
  struct Unit {
    int64_t id = -1;  ///< -1: patches not routed
    int64_t patches = 0;
    RegionFeatures mean{};
    /// Mean minus the mean of all patches, in standard deviations of all patches; 0 if these are 0.
    RegionFeatures difference{};
  };
  int64_t patches = 0;
  RegionFeatures mean{}, deviation{};  ///< over all patches
  std::vector<Unit> units;  ///< by id; a last one of patches not routed, if there are some

  /// Share of the patches that are routed to a unit; 0 without patches.
  double share(const Unit& unit) const;
};

/// Accumulates a RegionTable.
class RegionCounter {
 public:
  explicit RegionCounter(int64_t num_units);
  /// unit_N: -1 for patches not routed.
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
