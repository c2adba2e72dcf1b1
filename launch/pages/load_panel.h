#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/pages/picture.h"

namespace shoal {

/// Loads of the units of one layer (experts, and memory units: learned keys with values) over time.
struct LoadHistory {
  std::string layer;
  std::vector<int64_t> steps;             ///< logged steps, ascending
  std::vector<std::vector<double>> load;  ///< [logged step][unit]: choices of that unit
  int64_t memory_units = 0;  ///< number of memory units, the layer's last units; others are experts
};

/// A layer's loads prepared for a heat map: each unit's share of the choices relative to an even
/// share, averaged over neighbouring steps and units to at most 200 columns and 128 rows. A row
/// holds either experts or memory units.
struct LoadPanel {
  std::string layer;
  /// [n + 1]: index of each column's first logged step, or of each row's first unit; then the end.
  std::vector<size_t> column_offsets, row_offsets;
  std::vector<int64_t> column_steps;       ///< last step of each column
  std::vector<std::vector<double>> share;  ///< [rows][columns]; NaN: no load was logged
  size_t num_expert_rows = 0;              ///< rows of memory units follow

  size_t num_columns() const { return column_offsets.size() - 1; }
  size_t num_rows() const { return row_offsets.size() - 1; }
  bool has_both_kinds() const { return num_expert_rows > 0 && num_expert_rows < num_rows(); }
};

/// Prepares the loads of a layer for a heat map.
LoadPanel make_load_panel(const LoadHistory& layer);

/// Colour scale of shares relative to an even share: logarithmic around 1, blue below, red above,
/// light grey for an even share, black for zero.
///
/// The scale ranges from 1 / limit to `limit`. The limit is the smallest of a few round numbers
/// from 1.1 to 16 that leaves at most one in a hundred shares outside the scale, else 16.
class LoadScale {
 public:
  static constexpr int64_t kLevels = 65;   ///< the middle level is a balanced load
  static constexpr int64_t kNothing = -1;  ///< level of a load of zero

  explicit LoadScale(const std::vector<LoadPanel>& panels);
  explicit LoadScale(double limit) : limit_(limit) {}
  double limit() const { return limit_; }
  /// Level of a relative share, from 0 to kLevels - 1, or kNothing.
  int64_t level(double share) const;
  static Rgb colour(int64_t level);

  std::vector<ScaleTick> ticks() const;

 private:
  double limit_;
};

/// The loads at one moment: a row of cells for each layer with a cell for each unit, on a fixed
/// scale up to 4, so that moments can be compared; white where a layer has fewer units than others.
/// At most 128 rows and 256 columns; more are averaged over neighbours. `load` must not be empty.
Picture load_picture(const std::vector<std::vector<double>>& load);

}  // namespace shoal
