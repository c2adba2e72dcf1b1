#pragma once

#include <string>
#include <vector>

#include "launch/recipe/recipe.h"
#include "runtime/options/config_writer.h"

namespace shoal {

/// What changing a recipe key means for a run that is resumed.
enum class KeyRole {
  kFree,    ///< where and how to run: may differ silently
  kWarned,  ///< changes the rest of the training on purpose: may differ, with a warning
  kFixed,   ///< what is trained: may not differ
};

KeyRole role_of_key(const std::string& path);

/// What differs between the recipes of a checkpoint and of the run that resumes it. A value that is
/// `auto` in one of them and its value in the other do not differ where the options have
/// AutomaticValues. `to_node`: which keys are compared.
using ToNode = config::Node (*)(const config::Type& type, const void* options);
std::vector<config::Difference> differences_of(Recipe checkpoint, Recipe recipe,
                                               ToNode to_node = config::to_node);
/// Differences in keys of `model`, except those with the rule keeps_evaluation: they change the
/// function that the checkpoint's weights compute.
std::vector<config::Difference> evaluated_differences(const Recipe& checkpoint,
                                                      const Recipe& recipe);

/// The differences that deserve a warning. Throws Error (exit 12) with a two-column list if a
/// fixed key differs, unless `override_fixed`.
std::vector<config::Difference> check_resume(const std::vector<config::Difference>& differences,
                                             bool override_fixed);

/// Whether evaluations before and after do not compare, nor do the scores by which
/// checkpoint.keep_best chooses.
bool changes_scores(const std::vector<config::Difference>& differences);

/// Each on a line of its own, after a line end: `  path  checkpoint: before   recipe: after`.
std::string describe(const std::vector<config::Difference>& differences);

}  // namespace shoal
