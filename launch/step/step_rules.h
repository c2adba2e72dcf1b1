#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "launch/model/build_model.h"
#include "launch/recipe/recipe.h"
#include "parallel/gradients/step_rule.h"
#include "runtime/base/duration.h"

namespace shoal {

using StepRules = std::vector<std::unique_ptr<StepRule>>;

/// Makes what a training's steps do beside the optimizer's update, in the order in which they do
/// it: the task's rule, the learning of permutations, the choice of soft cells, pruning and growing
/// of masks, the average of the weights, and AfterStep of the trained modules. Where the optimizer
/// is sharded, the weights lie in its shards already. Throws ConfigError for a rule whose times
/// `scale` cannot count, and for sparse layers that are not possible.
StepRules make_step_rules(const Recipe& recipe, const BuiltModel& model, const StepScale& scale);

/// Makes the rules of a Session's steps, as make_step_rules does.
using StepRuleFactory =
    std::function<StepRules(const Recipe&, const BuiltModel&, const StepScale&)>;

}  // namespace shoal
