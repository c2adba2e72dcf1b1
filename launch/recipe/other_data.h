#pragma once

#include <string>
#include <vector>

#include "launch/recipe/recipe.h"

/// Evaluation of a model on other data than it was trained on, prepared as in training.
namespace shoal {

/// Replaces `auto` in data.normalise by the source's numbers, so that no other source or key gives
/// them later. Returns true if it replaced some. Data whose images cannot be prepared stay as they
/// are, for DataSource::image_transform to tell.
bool fix_normalisation(DataOptions& data);

/// Lays `changes`, some keys of a section `data`, over `own` and returns a whole section. If they
/// name another source, it gets of `own` only DataSource::kModelKeys, as far as it has such keys.
/// Environment variables that are not set stay as they are in `written`, which `own` was read from.
config::Node lay_over(const DataOptions& own, config::Node changes, const config::Node& written);

/// A checkpoint's recipe after changes.
struct ChangedRecipe {
  LoadedRecipe loaded;
  std::vector<std::string> kept;  ///< keys of `data` that another source took from the checkpoint
};

/// Reads `own`, a checkpoint's recipe, with the overrides and the environment of `changes`;
/// changes.path names it in messages. An override of data.source lays all overrides of `data` over
/// the checkpoint's section: see lay_over. Throws ConfigError with all mistakes.
ChangedRecipe read_changed(const Recipe& own, config::RecipeSource changes);

}  // namespace shoal
