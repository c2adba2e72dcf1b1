#include "launch/new_recipe/recipe_plan.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "launch/job/launch_info.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/options/config_reader.h"

namespace shoal {
namespace {

using Experts = Backbone::Sketch::Experts;

bool fits(const Backbone::Sketch& backbone, const DataSource::Sketch& source) {
  return backbone.task.empty() != source.image.has_value();
}

/// The names of the members whose sketch `fits`.
template <class Base>
std::vector<std::string> names_of(const std::function<bool(const typename Base::Sketch&)>& fits =
                                      [](const auto&) { return true; }) {
  std::vector<std::string> names;
  for (const config::MemberInfo* member : members_of<Base>().members()) {
    const auto* sketch = sketch_of<Base>(*member);
    if (sketch != nullptr && fits(*sketch)) names.push_back(member->name);
  }
  return names;
}

template <class Base>
Sketched<Base> find(const std::string& option, const std::string& name) {
  const config::MemberInfo* member = members_of<Base>().find(name);
  const auto* sketch = member == nullptr ? nullptr : sketch_of<Base>(*member);
  if (sketch != nullptr) return {member->name, *sketch};
  refuse_unknown(option + ": unknown name", name, names_of<Base>());
}

/// Finds a source of images that reads the folder to train, and its class names; {} if none.
std::pair<std::string, std::vector<std::string>> look_at(const std::string& folder,
                                                         const Sketched<Backbone>& backbone) {
  for (const std::string& name : new_recipe_sources(backbone.name)) {
    if (find<DataSource>("", name).sketch.path.empty() || backbone.sketch.task.empty()) continue;
    try {
      const auto data = config::load_options_text<DataOptions>(
          "source: " + name, "", {"", {"path=" + folder}, environment_variable});
      const auto source = Registry<DataSource>::create(data.options.source, {});
      source->open(Split::kTrain);
      return {name, source->class_names()};
    } catch (const Error&) {
      continue;
    }
  }
  return {};
}

Sketched<DataSource> source_for(const Sketched<Backbone>& backbone, const std::string& name) {
  const auto is_usual = [&](const DataSource::Sketch& source) {
    return source.is_usual && fits(backbone.sketch, source);
  };
  const std::string known = name.empty() ? names_of<DataSource>(is_usual).at(0) : name;
  const auto source = find<DataSource>("--data", known);
  if (fits(backbone.sketch, source.sketch)) return source;
  const bool has_images = source.sketch.image.has_value();
  const auto others =
      names_of<Backbone>([&](const Backbone::Sketch& other) { return fits(other, source.sketch); });
  throw Error(
      ExitCode::kUsage,
      fmt::format("{} reads {}, and {} has {}", backbone.name, has_images ? "tokens" : "images",
                  source.name, has_images ? "images" : "tokens"),
      fmt::format("--data for {}: {}; --backbone for {}: {}", backbone.name,
                  join_words(new_recipe_sources(backbone.name)), source.name, join_words(others)));
}

int64_t experts_for(const Sketched<Backbone>& backbone, std::optional<int64_t> wanted) {
  constexpr int64_t kUsual = 4;
  const Experts rule = backbone.sketch.experts;
  const int64_t experts = wanted.value_or(rule == Experts::kMust ? kUsual : 0);
  const bool is_refused = rule == (experts == 0 ? Experts::kMust : Experts::kNone);
  if (!is_refused) return experts;
  throw Error(ExitCode::kUsage,
              fmt::format("{} {} experts", backbone.name, experts == 0 ? "always has" : "has no"),
              std::string(backbone.sketch.why));
}

}  // namespace

std::string RecipePlan::task() const {
  if (is_of_images()) return std::string(backbone.sketch.task);
  return source.sketch.has_classes ? "classify" : "lm";
}

std::string RecipePlan::name() const {
  return fmt::format("{}_{}{}", backbone.name, source.name, adds_experts() ? "_moe" : "");
}

RecipePlan plan_recipe(const NewArguments& arguments) {
  const auto backbone = find<Backbone>("--backbone", arguments.backbone);
  const bool looks = arguments.data.empty() && !arguments.path.empty();
  const auto found = looks ? look_at(arguments.path, backbone)
                           : std::pair{arguments.data, std::vector<std::string>()};
  const auto source = source_for(backbone, found.first);
  if (!arguments.path.empty() && source.sketch.path.empty()) {
    throw Error(ExitCode::kUsage, fmt::format("--path: {} needs no files", source.name),
                looks ? "no source knows the files in this folder; name one by --data" : "");
  }
  return {backbone, source, experts_for(backbone, arguments.experts), arguments.path, found.second};
}

std::vector<std::string> new_recipe_backbones() { return names_of<Backbone>(); }

std::vector<std::string> new_recipe_sources() { return names_of<DataSource>(); }

std::vector<std::string> new_recipe_sources(const std::string& backbone) {
  const auto known = find<Backbone>("--backbone", backbone);
  return names_of<DataSource>(
      [&](const DataSource::Sketch& source) { return fits(known.sketch, source); });
}

}  // namespace shoal
