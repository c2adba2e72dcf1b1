#include "launch/recipe/resume_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/options/automatic_values.h"
#include "runtime/options/config_keys.h"

namespace shoal {

ResumeRule resume_rule(const Recipe& recipe, std::string_view key) {
  return config::resume_rule(config::type_of<Recipe>(), &recipe, key);
}

std::vector<ChangedKey> differences_of(Recipe checkpoint, Recipe recipe, ToNode to_node) {
  const auto differences = [&, &type = config::type_of<Recipe>()] {
    return config::diff(to_node(type, &checkpoint), to_node(type, &recipe));
  };
  const std::vector<config::Difference> written = differences();
  std::vector<ChangedKey> changed;
  for (const config::Difference& key : written) {
    changed.push_back({key, resume_rule(key.before ? checkpoint : recipe, key.path)});
  }
  for (Recipe* side : {&checkpoint, &recipe}) {
    config::resolve_all(ResolvedOn::kComparison, config::type_of<Recipe>(), side);
  }
  const std::vector<config::Difference> real = differences();
  std::erase_if(changed, [&real](const ChangedKey& key) {
    return std::ranges::find(real, key.path, &config::Difference::path) == real.end();
  });
  return changed;
}

std::vector<ChangedKey> evaluated_differences(const Recipe& checkpoint, const Recipe& recipe) {
  auto differences = differences_of(checkpoint, recipe, config::to_evaluated_node);
  std::erase_if(differences,
                [](const ChangedKey& key) { return !config::is_at_or_below(key.path, "model"); });
  return differences;
}

bool changes_scores(const std::vector<ChangedKey>& differences) {
  return std::ranges::any_of(differences,
                             [](const ChangedKey& key) { return key.rule.changes_scores; });
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
    if (key.rule.on_resume == OnResume::kFixed) fixed.push_back(key);
    if (key.rule.on_resume == OnResume::kWarned) warned.push_back(key);
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
