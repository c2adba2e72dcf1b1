#pragma once

#include <string>
#include <vector>

#include "launch/pages/load_panel.h"

namespace shoal {

/// SVG heat map of expert loads with one panel per layer: x = logged step, y = unit, colour = the
/// unit's load relative to a balanced load (LoadScale), on one scale for all layers. Memory units
/// (learned keys with values) of a layer are drawn apart, below its experts.
///
/// The SVG is UTF-8 text without scripts, links or fonts of its own.
std::string heat_map_svg(const std::string& title, const std::vector<LoadHistory>& layers);

}  // namespace shoal
