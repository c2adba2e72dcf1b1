#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/recipe/recipe.h"
#include "runtime/data/data_source.h"

namespace shoal {

/// Makes the recipe's data source without opening files. Token ids of texts, unless they are bytes,
/// are cached below XDG_CACHE_HOME or HOME of `environment`. Without both, such texts fail to open.
std::shared_ptr<const DataSource> make_source(const Recipe& recipe,
                                              const config::Environment& environment = {});

/// A further validation set of a recipe (evaluate.sets): its name and its data.
struct SetSource {
  std::string name;
  std::shared_ptr<const DataSource> source;
};

/// Makes the sources of evaluate.sets as make_source does. Throws ConfigError that names the first
/// set whose samples have another shape than those of `data`, the recipe's own source.
std::vector<SetSource> make_set_sources(const Recipe& recipe, const DataSource& data,
                                        const config::Environment& environment = {});

/// Throws ConfigError if evaluate.stride (tokens from one evaluated text window to the next) does
/// not fit the data.
void check_stride(const Recipe& recipe, const DataSource& source);

}  // namespace shoal
