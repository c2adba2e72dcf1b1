#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/options/config_schema.h"
#include "runtime/yaml/config_node.h"

namespace shoal::config {

/// Returns all keys and values of an options struct, with defaults, in the order of its fields().
Node to_node(const Type& type, const void* options);
template <class Options>
Node to_node(const Options& options) {
  return to_node(type_of<Options>(), &options);
}

/// Returns what differs from a default-constructed struct, and required keys. A choice, such
/// as of a router, shows its name unless it is the default one.
Node to_minimal_node(const Type& type, const void* options);

/// Keeps unset environment variables in a recipe that is written: where `document`, the recipe as
/// it was read, has `${env:X}/data` and X is not set, puts that text into `written` at the same
/// path. `written`: made by to_node or to_minimal_node of the options.
void keep_unset_variables(Node& written, const Node& document);

/// Returns the comment that emit prints behind the value at a dotted path; "" for none.
using Comment = std::function<std::string(const std::string& path)>;

/// YAML that load_document reads back to the same values; a literal `${` becomes `$${`.
std::string emit(const Node& root, const Comment& comment = nullptr);

/// Where the value at `path` was set, "recipe.yaml:14" or "command line"; else "default".
std::string origin_of(const Node& document, const std::string& path);

/// One value that differs between two recipes; nullopt on the side that lacks the key.
struct Difference {
  std::string path;
  std::optional<std::string> before;
  std::optional<std::string> after;
};

/// Compares leaf by leaf (lists of single values as a whole), in the order of `before`, then of
/// keys that only `after` has. Both must be trees of to_node, which are canonical.
std::vector<Difference> diff(const Node& before, const Node& after);

/// The canonical text of options: equal options give equal texts, which read back to equal options.
template <class Options>
std::string canonical_text(const Options& options) {
  return emit(to_node(options));
}

}  // namespace shoal::config
