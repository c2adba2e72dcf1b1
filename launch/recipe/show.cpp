#include "launch/recipe/show.h"

#include "launch/recipe/recipe.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/config_writer.h"

namespace shoal {

ExitCode show(const ShowArguments& arguments, std::ostream& out) {
  const LoadedRecipe loaded =
      config::load_options<Recipe>(arguments.source, config::UnsetVariable::kKeep);
  const config::Type& type = config::type_of<Recipe>();
  config::Node tree = arguments.minimal ? config::to_minimal_node(type, &loaded.options)
                                        : config::to_node(type, &loaded.options);
  config::keep_unset_variables(tree, loaded.document.root);
  out << config::emit(tree, [&loaded](const std::string& path) {
    return config::origin_of(loaded.document.root, path);
  });
  return ExitCode::kOk;
}

}  // namespace shoal
