#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/recipe/recipe.h"
#include "runtime/options/config_keys.h"
#include "runtime/options/config_writer.h"

namespace shoal {

/// Returns the rules of a key that the recipe has: whether a resumed run may change it, and more.
config::KeyRules rules_of_key(const Recipe& recipe, std::string_view key);

/// A key that differs between the recipes of a checkpoint and of the run that resumes it.
struct ChangedKey : config::Difference {
  config::KeyRules rules = {};
};

/// Returns the keys that differ between the recipes of a checkpoint and of the run that resumes it.
/// `auto` equals the value that it stands for, in options that declare how to resolve it
/// (AutomaticValues).
std::vector<ChangedKey> differences_of(Recipe checkpoint, Recipe recipe);
/// Returns the keys of `model` that differ, less those with the rule keeps_evaluation: they change
/// the function that the checkpoint's weights compute.
std::vector<ChangedKey> evaluated_differences(const Recipe& checkpoint, const Recipe& recipe);

/// Returns the differences to warn of: keys with OnResume::kWarned and, with `override_fixed`
/// (--override), kFixed. Without it, throws Error (exit 12) with a list if a kFixed key differs.
std::vector<ChangedKey> check_resume(const std::vector<ChangedKey>& differences,
                                     bool override_fixed);

/// True if evaluation scores before and after the change cannot be compared, neither by users nor
/// by checkpoint.keep_best.
bool changes_scores(const std::vector<ChangedKey>& differences);

/// Text with each difference on a new line: `  path  checkpoint: before   recipe: after`.
std::string describe(const std::vector<ChangedKey>& differences);

}  // namespace shoal
