#include "launch/new_recipe/new_recipe.h"

#include "launch/new_recipe/recipe_plan.h"
#include "launch/new_recipe/recipe_sections.h"

namespace shoal {

ExitCode new_recipe(const NewArguments& arguments, std::ostream& out) {
  const RecipePlan plan = plan_recipe(arguments);
  out << head_section(plan) << data_section(plan) << model_section(plan) << training_sections(plan);
  return ExitCode::kOk;
}

}  // namespace shoal
