#include "launch/commands/commands.h"
#include "launch/job/recipe.h"
#include "runtime/base/text.h"
#include "runtime/recipe/config_keys.h"
#include "runtime/recipe/config_writer.h"

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

ExitCode keys(const std::string& name, std::ostream& out) {
  const std::vector<config::KeyInfo> all = config::list_keys(config::type_of<Recipe>());
  if (config::print_keys(all, name, out) > 0) return ExitCode::kOk;
  std::vector<std::string> paths;
  for (const config::KeyInfo& key : all) {
    for (std::size_t dot = key.path.find('.'); dot != std::string::npos;
         dot = key.path.find('.', dot + 1)) {
      paths.push_back(key.path.substr(0, dot));
    }
    paths.push_back(key.path);
  }
  throw Error(ExitCode::kUsage, "no key is called '" + name + "'" + did_you_mean(name, paths));
}

}  // namespace shoal
