#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/report/picture.h"

namespace shoal {

/// One layer's loads over time.
struct LoadHistory {
  std::string layer;
  std::vector<int64_t> steps;             ///< logged ones, ascending
  std::vector<std::vector<double>> load;  ///< choices per unit, for each of `steps`
};

/// A picture of the loads, one panel a layer: x = logged step, y = unit, colour = the unit's
/// share of its layer's choices over an even share, on a logarithmic scale from 1/4 to 4, brighter
/// is more, black is nothing.
///
/// SVG text in UTF-8 without scripts, links or fonts of its own. A panel has at most 200 columns
/// and 128 rows; more steps and more units than that are averaged over neighbours.
std::string heat_map_svg(const std::string& title, const std::vector<LoadHistory>& layers);

/// The loads of one moment, a row of cells for each layer and a cell for each of its units, in the
/// colours of heat_map_svg; white where a layer has fewer units than others. At most 128 rows and
/// 256 columns, more are averaged over neighbours. `load` has at least one unit.
Picture load_picture(const std::vector<std::vector<double>>& load);

/// `text` for XML: markup escaped, control characters replaced by blanks.
std::string xml_text(const std::string& text);

}  // namespace shoal
