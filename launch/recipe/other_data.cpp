#include "launch/recipe/other_data.h"

#include <algorithm>
#include <utility>

#include "runtime/data/augment.h"
#include "runtime/options/config_keys.h"
#include "runtime/options/config_writer.h"
#include "runtime/options/registry.h"

namespace shoal {
namespace {

/// Adds the entries of `own` that `section` lacks, below shared sections too; not below a choice of
/// another member, which has other keys.
void add_missing(const config::Node& own, config::Node& section) {
  for (const char* name_key : {"name", "source"}) {
    const config::Entry *before = own.find(name_key), *now = section.find(name_key);
    if (before && now && before->value.text != now->value.text) return;
  }
  for (const config::Entry& entry : own.entries) {
    if (config::Entry* given = section.find(entry.key)) {
      if (given->value.kind == config::Node::Kind::kMap) add_missing(entry.value, given->value);
      continue;
    }
    config::Entry added{entry.key, section.position, entry.value};
    added.value.position = section.position;
    section.entries.push_back(std::move(added));
  }
}

/// Leaves of the section at `path` what models are trained for and a source has that has `keys`.
void keep_model_keys(const std::vector<config::KeyInfo>& keys, const std::string& path,
                     config::Node& section) {
  std::erase_if(section.entries, [&](config::Entry& entry) {
    const std::string inner = config::join_path(path, entry.key);
    if (std::ranges::find(DataSource::kModelKeys, inner) != DataSource::kModelKeys.end()) {
      return std::ranges::none_of(keys, [&inner](const config::KeyInfo& key) {
        return config::is_at_or_below(key.path, inner);
      });
    }
    keep_model_keys(keys, inner, entry.value);
    return entry.value.entries.empty();
  });
}

/// The part of a section that the command line gives.
config::Node typed_part(const config::Node& section) {
  config::Node part = section;
  std::erase_if(part.entries, [](config::Entry& entry) {
    const auto& source = entry.value.position.source;
    if (source && source->is_command_line) return false;
    entry.value = typed_part(entry.value);
    return entry.value.entries.empty();
  });
  return part;
}

}  // namespace

bool fix_normalisation(DataOptions& data) {
  auto* normalise = config::find_options<NormaliseOptions>(config::type_of<DataOptions>(), &data);
  if (normalise == nullptr || (normalise->mean && normalise->std)) return false;
  try {
    const auto images = Registry<DataSource>::create(data.source, {})->image_transform();
    if (images) *normalise = {images->stats.mean, images->stats.std};
    return images.has_value();
  } catch (const ConfigError&) {
    return false;
  }
}

config::Node lay_over(const DataOptions& own, config::Node changes, const config::Node& written) {
  config::Node whole = config::to_node(own);
  config::keep_unset_variables(whole, written);
  const config::Entry* named = changes.find(DataSource::kNameKey);
  const config::MemberInfo* source =
      named ? members_of<DataSource>().find(named->value.text) : own.source.member();
  if (source != nullptr && source != own.source.member()) {
    keep_model_keys(config::list_keys(source->options_type()), "", whole);
  }
  add_missing(whole, changes);
  return changes;
}

void Recipe::complete(config::Node& root, const config::Surroundings& surroundings) {
  const config::Entry* data = root.find("data");
  config::Entry* evaluate = root.find("evaluate");
  config::Entry* sets = evaluate ? evaluate->value.find("sets") : nullptr;
  if (data == nullptr || sets == nullptr) return;
  DataOptions own;
  config::Diagnostics mistakes;
  config::read_into(config::type_of<DataOptions>(), &own, data->value, surroundings, mistakes);
  const bool is_whole = mistakes.size() == 0;
  if (is_whole) fix_normalisation(own);
  for (config::Entry& set : sets->value.entries) {
    set.value.is_broken |= !is_whole;  // the mistakes are told where `data` is read
    if (is_whole && set.value.kind == config::Node::Kind::kMap) {
      set.value = lay_over(own, std::move(set.value), data->value);
    }
  }
}

ChangedRecipe read_changed(const Recipe& own, config::RecipeSource changes) {
  changes.text = config::canonical_text(own);
  ChangedRecipe changed;
  config::Diagnostics diagnostics;
  config::Document& document = changed.loaded.document;
  document = config::load_document(changes, diagnostics);
  if (!document.is_readable) diagnostics.throw_if_any();
  config::Entry* data = document.root.find("data");
  const config::Entry* source = data ? data->value.find(DataSource::kNameKey) : nullptr;
  if (source && source->value.text != own.data.source.name()) {
    const config::Node given = typed_part(data->value);
    data->value = lay_over(own.data, given, {});
    for (const std::string_view key : DataSource::kModelKeys) {
      const bool is_kept = find_node(data->value, key) && !find_node(given, key);
      if (is_kept) changed.kept.emplace_back(key);
    }
  }
  const config::Surroundings surroundings{.environment = changes.environment};
  Recipe::complete(document.root, surroundings);
  config::read_into(config::type_of<Recipe>(), &changed.loaded.options, document.root, surroundings,
                    diagnostics);
  diagnostics.throw_if_any();
  return changed;
}

}  // namespace shoal
