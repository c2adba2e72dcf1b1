#pragma once

#include <string>
#include <vector>

#include "launch/pages/load_panel.h"

namespace shoal {

/// A picture of the loads, one panel a layer (LoadPanel): x = logged step, y = unit, colour = the
/// unit's share of its layer's choices over an even share (LoadScale), on one scale for all layers.
/// Memory units of a layer that has experts, too, stand below these, apart and with their name.
///
/// SVG text in UTF-8 without scripts, links or fonts of its own.
std::string heat_map_svg(const std::string& title, const std::vector<LoadHistory>& layers);

}  // namespace shoal
