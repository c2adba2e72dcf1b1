#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {

/// Arguments of `shoal new --backbone NAME [--experts N] [--data SOURCE] [--path FOLDER]`.
struct NewArguments {
  std::string backbone;
  std::optional<int64_t> experts = {};  ///< per layer; default: 0, or 4 if the backbone needs some
  std::string data = {};  ///< default: what reads `path`; without it shapes, or text for tokens
  std::string path = {};  ///< data.path; default: that of the source's sketch
};

/// Prints a recipe: commented, accepted by `check`, with a model sized for the data, a task that
/// suits both and the usual balance losses. Throws Error (exit 2), listing valid values, for
/// unknown names and parts that cannot be combined.
ExitCode new_recipe(const NewArguments& arguments, std::ostream& out);

/// Accepted values of --backbone, and of --data: all, or those that go with a backbone.
std::vector<std::string> new_recipe_backbones();
std::vector<std::string> new_recipe_sources();
std::vector<std::string> new_recipe_sources(const std::string& backbone);

}  // namespace shoal
