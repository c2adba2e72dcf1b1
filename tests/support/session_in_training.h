#pragma once

#include <string>
#include <vector>

#include "launch/data/recipe_source.h"
#include "launch/step/session.h"
#include "launch/train/resume.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/base/error.h"
#include "runtime/files/file_system.h"
#include "runtime/options/config_writer.h"
#include "tests/support/equality_recipe.h"
#include "tests/support/model_on.h"
#include "tests/support/ranks.h"

namespace shoal::testing {

/// A session of one rank of the equality recipe with these overrides.
struct SessionInTraining {
  explicit SessionInTraining(const std::vector<std::string>& overrides)
      : recipe(equality_recipe(overrides)),
        data(open_split(make_source(recipe), Split::kTrain)),
        session(recipe, model_on(recipe, data, grid), data, grid) {}

  Recipe recipe;
  RankGrid grid = self_grid();
  OpenSplit data;
  Session session;
};

/// The first rule of type `Rule`; null if there is none.
template <class Rule>
Rule* find_rule(const StepRules& rules) {
  for (const auto& rule : rules) {
    if (auto* found = dynamic_cast<Rule*>(rule.get())) return found;
  }
  return nullptr;
}

/// A checkpoint of it in the folder.
inline std::string save(SessionInTraining& run, const std::string& folder) {
  PosixFileSystem files;
  CheckpointWriter::Options options;
  options.folder = folder;
  options.recipe = config::canonical_text(run.recipe);
  return CheckpointWriter(options, *run.grid.world, files).save(run.session, {0, 0, {}}).path;
}

/// Why the weights of model.init_from are not taken.
inline std::string loading_error(SessionInTraining& run) {
  try {
    load_initial_weights(run.session, run.recipe);
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

}  // namespace shoal::testing
