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

/// Makes the rules that each training step applies beside the optimizer's update, in the order of
/// their calls: the task's rule (a momentum encoder); the rules of sparse layers
/// (SparseModel::make_rules), such as prune-and-grow of masks; the weight average; and the
/// AfterStep hook of trained modules, such as a router that updates its balancing bias. Call this
/// after a sharded optimizer has moved the weights into its shards. Throws ConfigError for
/// durations of `sparsity` that `scale`, which converts durations to steps, cannot convert, and for
/// sparse layers that would end the training soft (with trained permutations or cells).
StepRules make_step_rules(const Recipe& recipe, const BuiltModel& model, const StepScale& scale);

/// A function that makes the rules of a Session's steps, by default make_step_rules.
using StepRuleFactory =
    std::function<StepRules(const Recipe&, const BuiltModel&, const StepScale&)>;

}  // namespace shoal
