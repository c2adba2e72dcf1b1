#pragma once

#include "launch/data/open_split.h"
#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/comm/rank_grid.h"

namespace shoal::testing {

/// The recipe's model for these data, on the grid's device, for a Session.
inline BuiltModel model_on(const Recipe& recipe, const OpenSplit& data, RankGrid& grid) {
  return build_model(recipe, data.source->shape(), {&grid, grid.device});
}

}  // namespace shoal::testing
