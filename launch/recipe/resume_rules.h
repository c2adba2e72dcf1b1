#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/recipe/recipe.h"
#include "runtime/options/config_keys.h"
#include "runtime/options/config_writer.h"

namespace shoal {

/// The rules of a key that the recipe has.
config::KeyRules rules_of_key(const Recipe& recipe, std::string_view key);

/// A key that differs between the recipes of a checkpoint and of the run that resumes it.
struct ChangedKey : config::Difference {
  config::KeyRules rules = {};
};

/// What differs between the recipes of a checkpoint and of the run that resumes it. A value that is
/// `auto` in one of them and its value in the other do not differ where the options have
/// AutomaticValues.
std::vector<ChangedKey> differences_of(Recipe checkpoint, Recipe recipe);
/// The keys of `model`, less those with the rule keeps_evaluation, that differ: they change the
/// function that the checkpoint's weights compute.
std::vector<ChangedKey> evaluated_differences(const Recipe& checkpoint, const Recipe& recipe);

/// Returns the differences that deserve a warning. Throws Error (exit 12) with a two-column list if
/// a fixed key differs, unless `override_fixed`.
std::vector<ChangedKey> check_resume(const std::vector<ChangedKey>& differences,
                                     bool override_fixed);

/// True if scores before and after cannot be compared, neither in evaluations nor by
/// checkpoint.keep_best.
bool changes_scores(const std::vector<ChangedKey>& differences);

/// Text with each difference on a new line: `  path  checkpoint: before   recipe: after`.
std::string describe(const std::vector<ChangedKey>& differences);

}  // namespace shoal
