#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/recipe/recipe.h"
#include "runtime/options/config_writer.h"

namespace shoal {

/// What a change of `key`, which the recipe has, means for a run that is resumed.
ResumeRule resume_rule(const Recipe& recipe, std::string_view key);

/// A key that differs between the recipes of a checkpoint and of the run that resumes it.
struct ChangedKey : config::Difference {
  ResumeRule rule = {};
};

/// What differs between the recipes of a checkpoint and of the run that resumes it. A value that is
/// `auto` in one of them and its value in the other do not differ where the options have
/// AutomaticValues. `to_node`: which keys are compared.
using ToNode = config::Node (*)(const config::Type& type, const void* options);
std::vector<ChangedKey> differences_of(Recipe checkpoint, Recipe recipe,
                                       ToNode to_node = config::to_node);
/// The keys of `model`, less those with the rule keeps_evaluation, that differ: they change the
/// function that the checkpoint's weights compute.
std::vector<ChangedKey> evaluated_differences(const Recipe& checkpoint, const Recipe& recipe);

/// The differences that deserve a warning. Throws Error (exit 12) with a two-column list if a
/// fixed key differs, unless `override_fixed`.
std::vector<ChangedKey> check_resume(const std::vector<ChangedKey>& differences,
                                     bool override_fixed);

/// Whether evaluations before and after do not compare, nor do the scores by which
/// checkpoint.keep_best chooses.
bool changes_scores(const std::vector<ChangedKey>& differences);

/// Each on a line of its own, after a line end: `  path  checkpoint: before   recipe: after`.
std::string describe(const std::vector<ChangedKey>& differences);

}  // namespace shoal
