#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/pages/picture.h"
#include "launch/report/figures.h"
#include "launch/runs/expert_records.h"

namespace shoal {

/// Rows of a list over steps, named `kind` and their place in it: the means of its entries, or with
/// `is_load` their shares over an even share. Of more than 128 entries neighbours are averaged, but
/// not those before `split` with those behind.
std::vector<HeatRow> list_rows(const ListHistory& list, const std::string& kind, size_t split,
                               bool is_load);

/// Colour scale of shares over an even share: logarithmic around 1, blue below, red above, light
/// grey for an even share, black for zero.
///
/// The scale ranges from 1 / limit to `limit`. The limit is the smallest of a few round numbers
/// from 1.1 to 16 that leaves at most one in a hundred shares outside the scale, else 16.
class LoadScale {
 public:
  static constexpr int64_t kLevels = 65;   ///< the middle level is a balanced load
  static constexpr int64_t kNothing = -1;  ///< level of a load of zero

  explicit LoadScale(const std::vector<std::vector<HeatRow>>& layers);
  explicit LoadScale(double limit) : limit_(limit) {}
  double limit() const { return limit_; }
  /// Level of a share, from 0 to kLevels - 1, or kNothing.
  int64_t level(double share) const;
  static Rgb colour(int64_t level);

 private:
  double limit_;
};

/// The loads at one moment: a row of cells for each layer with a cell for each unit, on a fixed
/// scale up to 4, so that moments can be compared; white where a layer has fewer units than others.
/// At most 128 rows and 256 columns; more are averaged over neighbours. `load` must not be empty.
Picture load_picture(const std::vector<std::vector<double>>& load);

/// SVG heat map of the loads of experts and memory units with one panel per layer: x = logged step,
/// y = unit, colour = LoadScale, on one scale for all layers. A line parts experts and memory
/// units, which are below. The SVG is UTF-8 text without scripts, links or fonts of its own.
std::string heat_map_svg(const std::string& title, const std::vector<LayerLoads>& layers);

}  // namespace shoal
