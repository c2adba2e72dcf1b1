#pragma once

#include <memory>

#include "launch/recipe/recipe.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// Makes the recipe's data source without opening its files. `environment` gives XDG_CACHE_HOME or
/// HOME, below which the source may cache encoded files; without them nothing is cached.
std::shared_ptr<const DataSource> make_source(const Recipe& recipe,
                                              const config::Environment& environment = {});

/// Throws ConfigError if evaluate.stride (tokens from one evaluated text window to the next) does
/// not fit the data.
void check_stride(const Recipe& recipe, const DataSource& source);

}  // namespace shoal
