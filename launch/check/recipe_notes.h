#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Notes to the user on settings that are allowed but worth knowing, one line each, such as the
/// memory that train.average (averaged weights) takes. `on_gpu`: adds what GPUs compute slowly:
/// float32 without TF32, weights whose sizes are not multiples of 8, layers that the host waits in.
std::vector<std::string> recipe_notes(const CheckedRecipe& checked, bool on_gpu = false);

/// Warnings of settings that are allowed but hardly meant, for `world` ranks, one line `KEY: what`
/// each: keys without effect, ranks without samples, routers without load balancing, checkpoints
/// that do not fit the disk of run.root. `files` reports the free space.
std::vector<std::string> recipe_warnings(const CheckedRecipe& checked, int64_t world,
                                         FileSystem& files);

/// Warns if the learning rate's warm-up or a milestone ends with the training or later, and if a
/// rule for masks of sparse layers never updates them. `scale`: samples per step and epoch, and
/// steps of the training; omitted while the data is not opened.
std::vector<std::string> schedule_warnings(const CheckedRecipe& checked, StepScale scale = {});

/// Warning that a resume from a checkpoint of `step` trains nothing: train.duration ends at `end`.
std::string past_end_warning(int64_t end, int64_t step);

/// Returns past_end_warning for the newest checkpoint that run.on_existing: resume would load, or
/// nothing. A train.duration in epochs gives none, since the number of samples is not known.
std::vector<std::string> resume_warnings(const CheckedRecipe& checked);

/// Lines on what the recipe names and this machine lacks: environment variables, files and folders
/// of the data, the checkpoint of model.init_from. No file is opened.
std::vector<std::string> missing_inputs(const CheckedRecipe& checked);

}  // namespace shoal
