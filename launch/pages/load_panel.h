#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/pages/picture.h"

namespace shoal {

/// One layer's loads over time.
struct LoadHistory {
  std::string layer;
  std::vector<int64_t> steps;             ///< logged ones, ascending
  std::vector<std::vector<double>> load;  ///< choices per unit, for each of `steps`
  int64_t memory_units = 0;               ///< the last ones of a layer that has experts, too
};

/// Loads as they are drawn: each unit's share of its layer's choices over an even share, at most
/// 200 columns of neighbouring steps and 128 rows of neighbouring units, of which the mean is
/// drawn. A row holds experts or memory units, never both.
struct LoadPanel {
  std::string layer;
  std::vector<size_t> column_offsets, row_offsets;  ///< in logged steps, in units
  std::vector<int64_t> column_steps;                ///< the last one of each column
  std::vector<std::vector<double>> share;           ///< [rows][columns]; NaN: no load is known
  size_t num_expert_rows = 0;                       ///< rows of memory units follow

  size_t num_columns() const { return column_offsets.size() - 1; }
  size_t num_rows() const { return row_offsets.size() - 1; }
  bool has_both_kinds() const { return num_expert_rows > 0 && num_expert_rows < num_rows(); }
};

LoadPanel make_load_panel(const LoadHistory& layer);

/// Which colour a share over the even one has: on a logarithmic scale around 1, blue for less, red
/// for more, light grey for an even share, black for nothing.
///
/// The scale ends at `limit` and 1 / limit: the least of a few round numbers from 1.1 to 16 beyond
/// which at most one in a hundred shares lies.
class LoadScale {
 public:
  static constexpr int64_t kLevels = 65;   ///< the one in the middle is an even share
  static constexpr int64_t kNothing = -1;  ///< level of a share of zero

  explicit LoadScale(const std::vector<LoadPanel>& panels);
  explicit LoadScale(double limit) : limit_(limit) {}
  double limit() const { return limit_; }
  int64_t level(double share) const;
  static Rgb colour(int64_t level);

  std::vector<ScaleTick> ticks() const;

 private:
  double limit_;
};

/// The loads of one moment, a row of cells for each layer and a cell for each of its units, in the
/// colours of a scale that ends at 4, so that moments compare; white where a layer has fewer units
/// than others. At most 128 rows and 256 columns, more are averaged over neighbours. `load` has at
/// least one unit.
Picture load_picture(const std::vector<std::vector<double>>& load);

}  // namespace shoal
