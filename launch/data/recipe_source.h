#pragma once

#include <memory>

#include "launch/recipe/recipe.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// The recipe's data source, no file of which is open yet. `environment`: where the user's cache
/// folder is looked up, XDG_CACHE_HOME or HOME; none: there is no such folder.
std::shared_ptr<const DataSource> make_source(const Recipe& recipe,
                                              const config::Environment& environment = {});

/// Throws ConfigError if evaluate.stride does not fit the data.
void check_stride(const Recipe& recipe, const DataSource& source);

}  // namespace shoal
