#include "launch/weights/recipe_paths.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <system_error>

#include "runtime/options/config_keys.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

using VisitPath = std::function<void(const std::string& key, std::string& path)>;

/// Visits the texts that name files or folders, other than items of lists.
void visit_paths(const config::Type& type, void* object, const std::string& key, bool is_path,
                 const VisitPath& visit) {
  using config::Kind;
  if (type.kind == Kind::kText && is_path) return visit(key, *static_cast<std::string*>(object));
  if (type.kind == Kind::kOptional && type.size(object) > 0) {
    return visit_paths(type.element(), const_cast<void*>(type.at(object, 0)), key, is_path, visit);
  }
  if (type.kind == Kind::kChoice) {
    auto& choice = const_cast<config::ChoiceValue&>(type.choice(object));
    if (choice.is_empty()) return;
    return visit_paths(choice.member()->options_type(), choice.erased_options(), key, false, visit);
  }
  for (const config::FieldInfo& field : type.fields) {
    visit_paths(field.type(), field.member(object),
                field.rules.is_inlined ? key : config::join_path(key, field.name),
                field.rules.is_path, visit);
  }
}

bool leads_somewhere(const fs::path& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

}  // namespace

std::string working_directory() {
  std::error_code failed;
  return fs::current_path(failed).string();
}

std::vector<std::string> find_paths(LoadedRecipe& loaded, const std::string& started_in) {
  std::vector<std::string> lines;
  const std::string here = working_directory();
  if (started_in.empty() || started_in == here) return lines;
  const auto find = [&](const std::string& key, std::string& path) {
    const config::Position position = config::find_position(loaded.document.root, key);
    const bool is_typed = position.source && position.source->is_command_line;
    const bool is_in_data_path =
        config::is_at_or_below(key, "data.train") || config::is_at_or_below(key, "data.valid");
    if (is_typed || is_in_data_path || fs::path(path).is_absolute() || leads_somewhere(path))
      return;
    const std::string there = (fs::path(started_in) / path).string();
    const bool is_found = leads_somewhere(there);
    lines.push_back(
        fmt::format("{}: '{}' is not in the working directory {}, {} {}, where the run was started",
                    key, path, here, is_found ? "but in" : "nor in", started_in));
    if (is_found) path = there;
  };
  visit_paths(config::type_of<DataOptions>(), &loaded.options.data, "data", false, find);
  visit_paths(config::type_of<Choice<Backbone>>(), &loaded.options.model.backbone, "model", false,
              find);
  return lines;
}

}  // namespace shoal
