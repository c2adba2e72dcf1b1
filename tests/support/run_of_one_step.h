#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "launch/train/resume.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch_folder.h"

namespace shoal::testing {

/// Trains a recipe for some steps on one rank and saves; the run's folder.
inline std::string run_of_steps(const Recipe& recipe, const ScratchFolder& scratch, int64_t steps) {
  RankGrid grid = self_grid();
  const auto data = open_split(make_source(recipe), Split::kTrain);
  Session session(recipe, model_on(recipe, data, grid), data, grid);
  for (int64_t step = 0; step < steps; ++step) session.step({});
  const RunFolder folder{scratch.file("run")};
  std::filesystem::create_directories(folder.checkpoints());
  Log log(scratch.file("log"), 0, nullptr);
  PosixFileSystem files;
  CheckpointWriter writer(
      begin_or_resume(session, recipe, folder, {.override_fixed = false, .log = log}), *grid.world,
      files);
  writer.save(session, {session.steps_done(), session.samples_done(), std::nullopt});
  return folder.path;
}

inline std::string run_of_one_step(const Recipe& recipe, const ScratchFolder& scratch) {
  return run_of_steps(recipe, scratch, 1);
}

}  // namespace shoal::testing
