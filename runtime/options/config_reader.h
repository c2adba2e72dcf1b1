#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/options/config_schema.h"
#include "runtime/yaml/config_node.h"
#include "runtime/yaml/recipe_document.h"

namespace shoal::config {

/// Handling of values that need an environment variable that is not set.
enum class UnsetVariable {
  kRefuse,  ///< a mistake at the value; for runs
  kKeep,    ///< a text keeps `${env:X}`, other types their default; for `check` and `show`
};

/// What reading a recipe depends on beside the recipe.
struct Surroundings {
  UnsetVariable unset = UnsetVariable::kRefuse;
  Environment environment = nullptr;  ///< looks up HOME for paths that begin with `~`
};

/// Reads `root` into `options`, a default-constructed object of the struct type `type`. Every
/// mistake goes to `diagnostics`: unknown keys (with a suggestion, see unknown_key.h), missing
/// required keys (at their section), values of the wrong type or out of range (at the value), and
/// the problems that validate() reports for structs without such mistakes.
void read_into(const Type& type, void* options, const Node& root, const Surroundings& surroundings,
               Diagnostics& diagnostics);

/// Result of reading a recipe: the options, and the document with their positions.
template <class Options>
struct Loaded {
  Options options;
  Document document;
  std::vector<std::string> found = {};  ///< keys whose values were found in the data
};

/// Reads a recipe into Options. Mistakes go to `diagnostics`; values with mistakes are unspecified.
/// Options may have a static `complete(Node& root, const Surroundings&)`, called on the tree first.
/// Throws ConfigError, with all mistakes, only if a file of the recipe could not be read.
template <class Options>
Loaded<Options> read_options(const RecipeSource& source, UnsetVariable unset,
                             Diagnostics& diagnostics) {
  Loaded<Options> loaded{Options{}, load_document(source, diagnostics)};
  if (!loaded.document.is_readable) diagnostics.throw_if_any();
  if constexpr (requires { Options::complete(loaded.document.root, Surroundings{}); }) {
    Options::complete(loaded.document.root, {unset, source.environment});
  }
  read_into(type_of<Options>(), &loaded.options, loaded.document.root, {unset, source.environment},
            diagnostics);
  return loaded;
}

/// Reads a recipe into Options. Throws ConfigError with all mistakes.
template <class Options>
Loaded<Options> load_options(const RecipeSource& source,
                             UnsetVariable unset = UnsetVariable::kRefuse) {
  Diagnostics diagnostics;
  Loaded<Options> loaded = read_options<Options>(source, unset, diagnostics);
  diagnostics.throw_if_any();
  return loaded;
}

/// Reads the recipe `text`, called `name` in messages, with the overrides and the environment of
/// `source`, whose path and text are ignored. Throws ConfigError with all mistakes.
template <class Options>
Loaded<Options> load_options_text(const std::string& text, const std::string& name,
                                  RecipeSource source = {},
                                  UnsetVariable unset = UnsetVariable::kRefuse) {
  source.path = name;
  source.text = text;
  return load_options<Options>(source, unset);
}

/// Adds the problems of an options struct to `diagnostics`, with their file, line and column.
/// `section`: path of the struct in the recipe `root`.
class LocatedProblems : public Problems {
 public:
  LocatedProblems(const Node& root, std::string section, Diagnostics& diagnostics)
      : root_(root), section_(std::move(section)), diagnostics_(diagnostics) {}
  void add(std::string_view path, std::string_view what) override;

 private:
  const Node& root_;
  std::string section_;
  Diagnostics& diagnostics_;
};

}  // namespace shoal::config
