#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/gradients/step_tensors.h"
#include "runtime/module/state.h"

namespace shoal {

/// Something that a training step does beside the optimizer's update: masks that are pruned and
/// grown, projections, averages of weights. `train.average` makes a WeightAverage; others come from
/// the StepRuleFactory that the program hands to a Session. Entries of `optimizer.rules` are
/// ParameterRules, not these.
///
/// Session calls every rule on all ranks, in the order of its list, and saves its state with the
/// rest. A rule's tensors of a parameter's shape are listed with state_like, so that those of an
/// expert stack are saved unit by unit. Rules draw nothing that depends on the rank: each replica
/// of a parameter must change it alike.
class StepRule : public Stateful {
 public:
  /// Names of the parameters whose whole gradients the rule reads in this step: equal on all ranks.
  virtual std::vector<std::string> needs_whole_gradients(int64_t step) {
    (void)step;
    return {};
  }
  /// Called before the forward passes of a step. Of what is saved it may change buffers and
  /// weights of Task::untrained alone: these get their old values back if the step is skipped.
  virtual void before_forward(int64_t step) { (void)step; }
  /// Gradients are summed, and neither measured nor clipped; weights are those of the last step. It
  /// is not known yet whether the gradients are finite, and if not the step is skipped: the rule
  /// may not change its own state here, and masks gradients by multiplying, which keeps a NaN.
  virtual void before_norm(int64_t step, StepTensors& tensors) { (void)step, (void)tensors; }
  /// Whether the rule's own change of the weights takes the place of the optimizer's update in this
  /// step: equal on all ranks.
  virtual bool replaces_update(int64_t step) {
    (void)step;
    return false;
  }
  /// Weights are updated and whole on every rank. Not called for a skipped step.
  virtual void after_update(int64_t step, StepTensors& tensors) { (void)step, (void)tensors; }
};

}  // namespace shoal
