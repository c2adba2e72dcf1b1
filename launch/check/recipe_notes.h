#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Notes on settings that are allowed but worth knowing, one line each, such as the memory that
/// train.average takes or a MoE layer whose router has a Router::note.
std::vector<std::string> recipe_notes(const CheckedRecipe& checked);

/// Warnings of what is allowed but hardly meant, for so many ranks, one line `PATH: what` each:
/// keys without effect, ranks without samples, routers that nothing balances, checkpoints that do
/// not fit the disk of run.root.
std::vector<std::string> recipe_warnings(const CheckedRecipe& checked, int64_t world,
                                         FileSystem& files);

/// Warnings of a warm-up and of milestones that end with the training or later. `scale`: samples
/// per step and epoch, steps of the training; without data only those that the recipe gives.
std::vector<std::string> schedule_warnings(const CheckedRecipe& checked, StepScale scale = {});

/// Warns of a resume whose train.duration ends at the step `end`, before its checkpoint's `step`.
std::string past_end_warning(int64_t end, int64_t step);

/// The past_end_warning of the newest checkpoint that run.on_existing: resume would load, or none.
/// A train.duration in epochs has no warning, since the number of samples is not known here.
std::vector<std::string> resume_warnings(const CheckedRecipe& checked);

/// Lines on what the recipe names and this machine lacks: environment variables, files and folders
/// of the data, the checkpoint of model.init_from. No file is opened.
std::vector<std::string> missing_inputs(const CheckedRecipe& checked);

}  // namespace shoal
