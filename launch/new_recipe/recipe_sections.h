#pragma once

#include <string>

#include "launch/new_recipe/recipe_plan.h"

namespace shoal {

// Parts of a first recipe, lines of YAML with comments, in this order.

std::string head_section(const RecipePlan& plan);
std::string data_section(const RecipePlan& plan);
std::string model_section(const RecipePlan& plan);
/// From `task` on.
std::string training_sections(const RecipePlan& plan);

}  // namespace shoal
