#include "launch/step/step_rules.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "parallel/gradients/weight_average.h"
#include "runtime/module/module.h"
#include "sparse/sparse_model.h"

namespace shoal {
namespace {

/// Calls AfterStep of the trained modules that have it, in the order of the model.
class AfterStepRule : public StepRule {
 public:
  explicit AfterStepRule(const Task& task) {
    const std::set<const torch::nn::Module*> untrained = untrained_modules(task);
    for (const auto& module : task.modules()) {
      auto* follower = dynamic_cast<AfterStep*>(module.get());
      if (follower != nullptr && !untrained.contains(module.get())) modules_.push_back(follower);
    }
  }

  void after_update(int64_t /*step*/, StepTensors& /*tensors*/) override {
    for (AfterStep* module : modules_) module->after_step();
  }
  void visit_state(StateVisitor& /*visitor*/) override {}

 private:
  std::vector<AfterStep*> modules_;
};

}  // namespace

StepRules make_step_rules(const Recipe& recipe, const BuiltModel& model, const StepScale& scale) {
  StepRules rules;
  const auto add = [&rules](std::unique_ptr<StepRule> rule) {
    if (rule) rules.push_back(std::move(rule));
  };
  add(model.task->make_step_rule(scale));
  std::unique_ptr<WeightAverage> average;
  if (recipe.train.average) {
    average = std::make_unique<WeightAverage>(*recipe.train.average, model.parameters);
  }
  if (model.sparse) {
    std::ranges::move(model.sparse->make_rules(scale, average.get()), std::back_inserter(rules));
  }
  add(std::move(average));
  add(std::make_unique<AfterStepRule>(*model.task));
  return rules;
}

}  // namespace shoal
