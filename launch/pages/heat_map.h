#pragma once

#include <string>
#include <vector>

#include "launch/pages/load_panel.h"

namespace shoal {

/// A picture of expert loads, one panel a layer (LoadPanel): x = logged step, y = unit, colour =
/// the unit's share of its layer's choices relative to an even share (LoadScale), on one scale for
/// all layers. In layers with experts and memory units, the memory units form a labelled group at
/// the bottom.
///
/// Returns SVG text in UTF-8, without scripts, links or embedded fonts.
std::string heat_map_svg(const std::string& title, const std::vector<LoadHistory>& layers);

}  // namespace shoal
