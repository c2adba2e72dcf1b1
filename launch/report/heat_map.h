#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// `text` for XML: markup escaped, control characters replaced by blanks.
std::string xml_text(const std::string& text);

}  // namespace shoal
