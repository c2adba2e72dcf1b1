#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/gradients/step_tensors.h"
#include "runtime/base/duration.h"
#include "runtime/module/state.h"

namespace shoal {

/// A number that changes over a training towards its end, such as a momentum that rises to 1.
struct Course {
  std::string name;                        ///< for people: a recipe key
  std::function<double(int64_t step)> at;  ///< its value at a step, counted from 0
};

/// Something that a training step does beside the optimizer's update: masks that are pruned and
/// grown, projections, averages of weights. make_step_rules lists the rules of a recipe; entries of
/// `optimizer.rules` are ParameterRules, not these.
///
/// Session calls every rule on all ranks, in the order of its list, and saves its state with the
/// rest. Tensors with a parameter's shape are listed with state_like, so that those of an expert
/// stack are saved unit by unit. Random draws must not depend on the rank: all replicas of a
/// parameter must change alike.
class StepRule : public Stateful {
 public:
  /// Names of the parameters whose whole gradients the rule reads in this step; equal on all ranks.
  virtual std::vector<std::string> needs_whole_gradients(int64_t step) {
    (void)step;
    return {};
  }
  /// Called before the forward passes of a step. A rule may change buffers and its moved_weights
  /// here, which get their old values back if the step is skipped, and nothing else that is saved.
  virtual void before_forward(int64_t step) { (void)step; }
  /// Weights that before_forward changes, without gradients; default: none.
  virtual std::vector<torch::Tensor> moved_weights() const { return {}; }
  /// Called when gradients are summed, and neither measured nor clipped; weights are those of the
  /// last step. A gradient may not be finite, and the step is skipped then: a rule may not change
  /// its own state here, and masks gradients by multiplying, which keeps a NaN.
  virtual void before_norm(int64_t step, StepTensors& tensors) { (void)step, (void)tensors; }
  /// True if the rule's own change of the weights takes the place of the optimizer's update in this
  /// step: equal on all ranks.
  virtual bool replaces_update(int64_t step) {
    (void)step;
    return false;
  }
  /// Called when weights are updated and whole on every rank. Not called for a skipped step.
  virtual void after_update(int64_t step, StepTensors& tensors) { (void)step, (void)tensors; }
  /// Puts other weights in the place of the model's, with which an evaluation computes until what
  /// is returned is released. Default: null, the model keeps its own.
  virtual std::shared_ptr<void> lend_weights() { return nullptr; }
  /// What of the rule depends on where a training ends, for a training of this length. A rule
  /// learns of the end only so, and a resume that moves it tells what changes. Default: nothing.
  virtual std::vector<Course> courses(const StepScale& scale) const {
    (void)scale;
    return {};
  }
};

}  // namespace shoal
