#pragma once

#include "runtime/recipe/config_node.h"
#include "runtime/recipe/recipe_document.h"

namespace shoal::config {

/// Replaces all `${a.b}` and `${env:X}` below `root` in place, see load_document. Cycles, missing
/// keys and malformed references go to `diagnostics`, at the value that holds them.
void interpolate(Node& root, const Environment& environment, Diagnostics& diagnostics);

}  // namespace shoal::config
