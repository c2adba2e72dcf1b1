#include "launch/recipe/show.h"

#include "launch/recipe/recipe.h"
#include "runtime/options/config_reader.h"
#include "runtime/options/config_writer.h"

namespace shoal {

ExitCode show(const ShowArguments& arguments, std::ostream& out) {
  LoadedRecipe loaded =
      config::load_options<Recipe>(arguments.source, config::UnsetVariable::kKeep);
  if (!arguments.minimal) loaded.found = find_classes(loaded.options);
  const config::Type& type = config::type_of<Recipe>();
  config::Node tree = arguments.minimal ? config::to_minimal_node(type, &loaded.options)
                                        : config::to_node(type, &loaded.options);
  config::keep_unset_variables(tree, loaded.document.root);
  out << config::emit(tree, origins_of(loaded));
  return ExitCode::kOk;
}

}  // namespace shoal
