#include "launch/recipe/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "runtime/base/text.h"
#include "runtime/data/class_options.h"
#include "runtime/yaml/config_scalar.h"

namespace shoal {
namespace {

/// True if a path stays below the folder it is appended to, and names something there.
bool stays_below(const std::filesystem::path& path) {
  return path.is_relative() && std::ranges::none_of(path, [](const auto& part) {
           return part.empty() || part == "." || part == "..";
         });
}

}  // namespace

template const config::Type& config::type_of<Recipe>();

void RunOptions::validate(Problems& problems) const {
  if (has_control_character(name)) {
    return problems.add("name", "a folder's name has no control characters");
  }
  const std::string invisible = config::invisible_character(name);
  if (!invisible.empty()) {
    return problems.add("name", "a folder's name has no invisible characters, and this one has " +
                                    invisible + "; leave it out");
  }
  if (stays_below(name)) return;
  problems.add("name",
               fmt::format("'{}' does not name a folder below run.root; leave out '.', '..' and "
                           "slashes at either end, and put other places into run.root",
                           name));
}

void TrainOptions::validate(Problems& problems) const {
  const int64_t micro_batch = batch / accumulate;
  const int64_t unit = accumulate * group, below = batch / unit * unit;
  const std::string advice =
      fmt::format("try batch {}{}", below > 0 ? fmt::format("{} or ", below) : "", below + unit);
  if (batch % accumulate != 0) {
    problems.add("batch",
                 fmt::format("{} cannot be cut into {} equal micro-steps (train.accumulate); {}",
                             counted(batch, "sample"), accumulate, advice));
  } else if (micro_batch % group != 0) {
    problems.add("batch", fmt::format("batch / accumulate = {} / {} = {} {} not whole routing "
                                      "groups of {} (train.group); {}",
                                      batch, accumulate, counted(micro_batch, "sample"),
                                      micro_batch == 1 ? "is" : "are", group, advice));
  }
}

void EvaluateOptions::validate(Problems& problems) const {
  for (const auto& [name, data] : sets) {
    const bool is_plain = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
    if (is_plain) continue;
    problems.add("sets", fmt::format("'{}' is not a name; use letters, digits, _ and -", name));
  }
}

void share_classes(Recipe& recipe) {
  const ClassOptions* own = class_options_of(recipe.data.source);
  for (auto& set : recipe.evaluate.sets) {
    ClassOptions* of_set = class_options_of(set.options.source);
    if (own != nullptr && of_set != nullptr) *of_set = *own;
  }
}

std::vector<std::string> find_classes(Recipe& recipe) {
  ClassOptions* classes = class_options_of(recipe.data.source);
  if (classes == nullptr) return {};
  const config::Node before = config::to_node(recipe.data);
  const auto source = Registry<DataSource>::create(recipe.data.source, {});
  const DataShape shape = source->shape();
  if (!shape.has_unknown_classes) classes->classes = shape.classes;
  classes->class_names = source->class_names();
  share_classes(recipe);
  std::vector<std::string> found;
  for (const config::Difference& key : config::diff(before, config::to_node(recipe.data))) {
    found.push_back(config::join_path("data", key.path));
  }
  return found;
}

config::Comment origins_of(const LoadedRecipe& loaded) {
  return [&loaded](const std::string& path) {
    const bool is_found = std::ranges::find(loaded.found, path) != loaded.found.end();
    return is_found ? "found in the data" : config::origin_of(loaded.document.root, path);
  };
}

Recipe stored_recipe(const Manifest& manifest, const std::string& checkpoint) {
  return config::load_options_text<Recipe>(manifest.recipe, checkpoint + "'s recipe", {},
                                           config::UnsetVariable::kKeep)
      .options;
}

torch::Dtype dtype_of(const Recipe& recipe) {
  return recipe.train.precision == Precision::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

torch::Dtype compute_dtype_of(const Recipe& recipe) {
  return recipe.train.precision == Precision::kBfloat16 ? torch::kBFloat16 : dtype_of(recipe);
}

}  // namespace shoal
