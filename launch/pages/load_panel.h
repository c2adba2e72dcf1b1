#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/pages/picture.h"

namespace shoal {

/// Load of one layer's units over the logged steps.
struct LoadHistory {
  std::string layer;
  std::vector<int64_t> steps;             ///< logged steps, ascending
  std::vector<std::vector<double>> load;  ///< routed tokens per unit, for each of `steps`
  int64_t memory_units = 0;               ///< the last units, if the layer also has experts
};

/// Grid of loads for drawing: each unit's share of its layer's load, relative to a balanced load,
/// as means over at most 200 columns of consecutive steps and 128 rows of consecutive units.
/// Experts and memory units do not share a row.
struct LoadPanel {
  std::string layer;
  std::vector<size_t> column_offsets, row_offsets;  ///< into logged steps, into units
  std::vector<int64_t> column_steps;                ///< last step of each column
  std::vector<std::vector<double>> share;           ///< [rows][columns]; NaN: load unknown
  size_t num_expert_rows = 0;                       ///< rows of memory units follow

  size_t num_columns() const { return column_offsets.size() - 1; }
  size_t num_rows() const { return row_offsets.size() - 1; }
  bool has_both_kinds() const { return num_expert_rows > 0 && num_expert_rows < num_rows(); }
};

LoadPanel make_load_panel(const LoadHistory& layer);

/// Colour scale for relative loads: logarithmic around 1, blue for less, red for more, light grey
/// for a balanced load, black for zero.
///
/// The scale ranges from 1 / `limit` to `limit`, the smallest of a few round numbers from 1.1 to 16
/// that at most one percent of the values exceeds.
class LoadScale {
 public:
  static constexpr int64_t kLevels = 65;   ///< the middle level is a balanced load
  static constexpr int64_t kNothing = -1;  ///< level of a load of zero

  explicit LoadScale(const std::vector<LoadPanel>& panels);
  explicit LoadScale(double limit) : limit_(limit) {}
  double limit() const { return limit_; }
  int64_t level(double share) const;
  static Rgb colour(int64_t level);

  std::vector<ScaleTick> ticks() const;

 private:
  double limit_;
};

/// Picture of the loads at one step: a row of cells per layer, a cell per unit, on a fixed scale
/// with limit 4, so that steps can be compared; white where a layer has fewer units than others.
/// Neighbours are averaged to at most 128 rows and 256 columns. `load` must have at least one unit.
Picture load_picture(const std::vector<std::vector<double>>& load);

}  // namespace shoal
