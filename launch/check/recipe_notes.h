#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// What is allowed but worth knowing, of the recipe and of its model's stages; one line each.
std::vector<std::string> recipe_notes(const CheckedRecipe& checked);

/// What is allowed but hardly meant, for so many ranks, `PATH: what`, one line each: keys without
/// effect, ranks without samples, routers that nothing balances, checkpoints that do not fit the
/// disk of run.root.
std::vector<std::string> recipe_warnings(const CheckedRecipe& checked, int64_t world,
                                         FileSystem& files);

/// Likewise of a warm-up and milestones that end with the training or later. `scale`: as
/// is_behind_end's.
std::vector<std::string> schedule_warnings(const CheckedRecipe& checked, StepScale scale = {});

/// Warning that a resume's train.duration ends at step `end`, before its checkpoint's `step`.
std::string past_end_warning(int64_t end, int64_t step);

/// past_end_warning for the newest checkpoint that run.on_existing: resume would find, if it can be
/// determined without data: durations in epochs cannot. One line or none.
std::vector<std::string> resume_warnings(const CheckedRecipe& checked);

/// What the recipe names and this machine lacks: environment variables, files and folders of the
/// data, the checkpoint of model.init_from; one line each. No file is opened.
std::vector<std::string> missing_inputs(const CheckedRecipe& checked);

}  // namespace shoal
