#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/yaml/config_node.h"

namespace shoal::config {

/// Looks up an environment variable; nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The parts of a recipe.
struct RecipeSource {
  std::string path;                    ///< "" without a file: overrides alone
  std::vector<std::string> overrides;  ///< `train.batch=64`, `~model.router.noise`
  Environment environment;             ///< looks up `${env:X}`; null: no variable is set
  /// Content in place of the file; `path` is then its name in messages. Includes are refused.
  std::optional<std::string> text = std::nullopt;
};

/// A recipe with its includes merged, overrides applied and references replaced. A value that needs
/// an unset variable keeps its text and has `has_unset_variable`, which its reader handles.
struct Document {
  Node root;                 ///< a mapping
  bool is_readable = false;  ///< false if some file could not be read to its end
};

/// Loads a recipe. In this order: `include` (one path or a list, relative to the file; mappings are
/// merged key by key, anything else is replaced; later files win, the including one last), the
/// overrides from left to right (`key=value` with a YAML value replaces, `~key` removes), and the
/// references `${a.b}` and `${env:X}`. A scalar that is one reference takes the value and its type;
/// inside other text a reference must be a single value. `$${` is a literal `${`. Mistakes go to
/// `diagnostics`; it does not throw ConfigError.
Document load_document(const RecipeSource& source, Diagnostics& diagnostics);

/// The last step of loading: replaces all references below `root` in place. Cycles, missing keys
/// and malformed references go to `diagnostics`, at the value that contains them.
void interpolate(Node& root, const Environment& environment, Diagnostics& diagnostics);

}  // namespace shoal::config
