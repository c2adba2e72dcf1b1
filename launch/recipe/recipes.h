#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {

/// `shoal recipes`: the recipes below `folder`, each with the first sentence of its comment, or
/// more where that is but a name. `words`: only those that have all of them in path or sentence.
/// Throws Error (exit 2) if none has.
ExitCode recipes(const std::string& folder, const std::vector<std::string>& words,
                 std::ostream& out);

/// The recipes that the path of a missing file may mean, beside it or below `folder`: those of its
/// file name, else of the nearest one. Three at most, as a user types them.
std::vector<std::string> nearest_recipes(const std::string& path, const std::string& folder);

/// The folder of the recipes that belong to the program at `program`: of the source tree it was
/// built in, or `share/shoal/configs` beside the `bin` it was installed to. Throws Error (exit 2)
/// if there is neither.
std::string find_recipes_folder(const std::string& program);

}  // namespace shoal
