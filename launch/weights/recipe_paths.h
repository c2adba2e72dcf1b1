#pragma once

#include <string>
#include <vector>

#include "launch/recipe/recipe.h"

namespace shoal {

/// Name under which a checkpoint's manifest stores the folder that its training was started in.
inline constexpr const char* kStartedIn = "started_in";

/// Returns the working directory; "" if it has been removed.
std::string working_directory();

/// Looks for the data and other files that a checkpoint's recipe names by relative paths. A path
/// without a file in the working directory, but with one in `started_in`, the folder that the
/// training was started in, becomes absolute. Paths of the command line stay as they are. Returns a
/// line for the user on each path without a file in the working directory. `started_in`: "" if it
/// is not known; then nothing is looked for.
std::vector<std::string> find_paths(LoadedRecipe& loaded, const std::string& started_in);

}  // namespace shoal
