#include "launch/recipe/resume_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launch/recipe/other_data.h"
#include "runtime/base/error.h"
#include "runtime/options/automatic_values.h"

namespace shoal {

config::KeyRules rules_of_key(const Recipe& recipe, std::string_view key) {
  return config::key_rules(config::type_of<Recipe>(), &recipe, key);
}

std::vector<ChangedKey> differences_of(Recipe checkpoint, Recipe recipe) {
  std::vector<ChangedKey> changed;
  for (config::Difference& key :
       config::diff(config::to_node(checkpoint), config::to_node(recipe))) {
    const config::KeyRules rules = rules_of_key(key.before ? checkpoint : recipe, key.path);
    changed.push_back({std::move(key), rules});
  }
  for (Recipe* side : {&checkpoint, &recipe}) {
    config::resolve_all(ResolvedOn::kComparison, config::type_of<Recipe>(), side);
    fix_normalisation(side->data);
    for (auto& set : side->evaluate.sets) fix_normalisation(set.options);
  }
  const auto real = config::diff(config::to_node(checkpoint), config::to_node(recipe));
  std::erase_if(changed, [&real](const ChangedKey& key) {
    return std::ranges::find(real, key.path, &config::Difference::path) == real.end();
  });
  return changed;
}

std::vector<ChangedKey> evaluated_differences(const Recipe& checkpoint, const Recipe& recipe) {
  std::vector<ChangedKey> differences = differences_of(checkpoint, recipe);
  std::erase_if(differences, [](const ChangedKey& key) {
    return key.rules.keeps_evaluation || !config::is_at_or_below(key.path, "model");
  });
  return differences;
}

bool changes_scores(const std::vector<ChangedKey>& differences) {
  return std::ranges::any_of(differences,
                             [](const ChangedKey& key) { return key.rules.resume.changes_scores; });
}

std::string describe(const std::vector<ChangedKey>& differences) {
  size_t width = 0;
  for (const ChangedKey& key : differences) width = std::max(width, key.path.size());
  std::string text;
  for (const ChangedKey& key : differences) {
    text += fmt::format("\n  {:<{}}  checkpoint: {}   recipe: {}", key.path, width,
                        key.before.value_or("(none)"), key.after.value_or("(none)"));
  }
  return text;
}

std::vector<ChangedKey> check_resume(const std::vector<ChangedKey>& differences,
                                     bool override_fixed) {
  std::vector<ChangedKey> fixed, warned;
  for (const ChangedKey& key : differences) {
    if (key.rules.resume.on_resume == OnResume::kFixed) fixed.push_back(key);
    if (key.rules.resume.on_resume == OnResume::kWarned) warned.push_back(key);
  }
  if (!fixed.empty() && !override_fixed) {
    throw Error(ExitCode::kMismatch,
                "the recipe differs from the one this run was started with:" + describe(fixed),
                "change these keys back, start a new run (another run.name), or accept the "
                "difference with --override");
  }
  warned.insert(warned.end(), fixed.begin(), fixed.end());
  return warned;
}

}  // namespace shoal
