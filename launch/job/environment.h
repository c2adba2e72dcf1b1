#pragma once

#include <optional>
#include <string>

#include "runtime/yaml/recipe_document.h"

namespace shoal {

/// Looks up an environment variable.
using config::Environment;

/// Looks up a variable of this process's own environment.
std::optional<std::string> environment_variable(const std::string& name);

/// The folder in which Shoal and launch/setup keep what they fetch or measure for this user, below
/// XDG_CACHE_HOME or HOME. Empty without either.
std::string cache_folder(const Environment& environment);

}  // namespace shoal
