#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/data_source.h"
#include "runtime/options/config_reader.h"

namespace shoal::testing {

/// Builds the source of a recipe's section `data`, such as "{source: mqar, pairs: 4}", with the
/// overrides `changes`, such as "train.samples=8". Throws ConfigError.
inline std::shared_ptr<DataSource> source_of(const std::string& data,
                                             const std::vector<std::string>& changes = {}) {
  config::RecipeSource recipe;
  recipe.overrides = changes;
  const auto loaded = config::load_options_text<DataOptions>(data, "r.yaml", recipe);
  return Registry<DataSource>::create(loaded.options.source, {});
}

}  // namespace shoal::testing
