#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/recipe/recipe.h"
#include "runtime/options/config_keys.h"
#include "runtime/options/config_writer.h"

namespace shoal {

/// Returns the rules of a key that the recipe has: OnResume, changes_scores, keeps_evaluation.
config::KeyRules rules_of_key(const Recipe& recipe, std::string_view key);

/// A key that differs between the recipes of a checkpoint and of the run that resumes it.
struct ChangedKey : config::Difference {
  config::KeyRules rules = {};
};

/// Returns all keys that differ between both recipes. `auto` equals the value that it stands for,
/// in options that declare how to resolve it (AutomaticValues).
std::vector<ChangedKey> differences_of(Recipe checkpoint, Recipe recipe);
/// Returns the differing keys of section `model` that change what given weights compute: the keys
/// without keeps_evaluation. For weights used outside their run (model.init_from, `shoal eval`).
std::vector<ChangedKey> evaluated_differences(const Recipe& checkpoint, const Recipe& recipe);

/// Returns the differences to warn of: keys with OnResume::kWarned and, with `override_fixed`
/// (--override), kFixed. Without --override throws Error (exit 12) with a list of kFixed keys.
std::vector<ChangedKey> check_resume(const std::vector<ChangedKey>& differences,
                                     bool override_fixed);

/// True if a key that only evaluations read differs, such as the validation data (changes_scores):
/// scores from before and after the resume are then not comparable.
bool changes_scores(const std::vector<ChangedKey>& differences);

/// Text with each difference on a new line: `  path  checkpoint: before   recipe: after`.
std::string describe(const std::vector<ChangedKey>& differences);

}  // namespace shoal
