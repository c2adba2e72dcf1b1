#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {

/// Runs `shoal recipes`: lists the recipes (YAML files that configure runs) below `folder`, each
/// with the first sentence of its comment, and the next one if that is only a name. `words`: lists
/// only those with all of them in path or sentence. Throws Error (exit 2) if `words` match none.
ExitCode recipes(const std::string& folder, const std::vector<std::string>& words,
                 std::ostream& out);

/// Returns existing recipes to suggest for a missing `path`: those beside it with the same, else
/// the nearest, name; without any, those below `folder`. At most three, as a user types them.
std::vector<std::string> nearest_recipes(const std::string& path, const std::string& folder);

/// Folder of the recipes that belong to the program at `program`: in the source tree it was built
/// in, or `share/shoal/configs` beside the `bin` it was installed to. Throws Error (exit 2) if
/// there is neither.
std::string find_recipes_folder(const std::string& program);

}  // namespace shoal
