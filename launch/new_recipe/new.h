#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace shoal {

/// `shoal new --backbone NAME [--experts N] [--data SOURCE] [--path FOLDER]`.
struct NewArguments {
  std::string backbone;
  std::optional<int64_t> experts = {};  ///< of a layer; default: 0, unless it must have some
  std::string data = {};                ///< a data source; default: shapes, or text
  std::string path = {};                ///< data.path; default: the environment's, or a dummy
};

/// Prints a small recipe with comments that passes `check`: the model sized for
/// the data, the task that both allow, and the balance losses that are usual for the router. Throws
/// Error (exit 2) for names that are none, and for backbones, experts and data that do not go
/// together, with those that do.
ExitCode new_recipe(const NewArguments& arguments, std::ostream& out);

/// The values of --backbone, and of --data: all of them, or those that go with a backbone.
std::vector<std::string> new_recipe_backbones();
std::vector<std::string> new_recipe_sources();
std::vector<std::string> new_recipe_sources(const std::string& backbone);

}  // namespace shoal
