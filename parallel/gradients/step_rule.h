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

/// A schedule relative to the training's end, such as a momentum that rises to 1.
struct Course {
  std::string name;                        ///< recipe key, or words for it, for messages
  std::function<double(int64_t step)> at;  ///< its value at an optimizer step, from 0
};

/// What an optimizer step does beside the optimizer's update, like a callback: sparse masks that
/// are pruned and grown, momentum encoders, averages of weights.
///
/// The training loop (Session) calls the methods below in every optimizer step, on all ranks, for
/// every rule in a fixed order. The state that a rule lists in visit_state is saved in checkpoints;
/// tensors with a parameter's shape are listed with state_like, so that those of an expert stack
/// (one matrix for each expert) are saved expert by expert. Random numbers must not depend on the
/// rank: all copies of a parameter must change alike. `step` is the optimizer step, counted from 0.
/// A step is skipped, without update, if the gradient norm is not finite.
/// StepTensors gives, by parameter name, weights (writable in after_update), summed gradients
/// (writable in before_norm) and optimizer state.
class StepRule : public Stateful {
 public:
  /// Returns the parameters whose whole gradients the rule reads in this step; equal on all ranks.
  /// With sharded optimizer state (ZeRO-1), StepTensors::gradient gives only this rank's range.
  virtual std::vector<std::string> needs_whole_gradients(int64_t /*step*/) { return {}; }
  /// Called before the forward passes of a step. Of the saved state it may change only the model's
  /// buffers and moved_weights(). If the step is skipped, both get back their values from before
  /// this call. A skipped step 0 keeps what this call set, such as a momentum encoder's first copy.
  virtual void before_forward(int64_t /*step*/) {}
  /// Returns the frozen weights that before_forward changes, such as a momentum encoder's.
  virtual std::vector<torch::Tensor> moved_weights() const { return {}; }
  /// Called after gradients were summed over ranks, before their norm is measured and they are
  /// clipped. Must not change the rule's own state: a gradient may not be finite, and the step is
  /// then skipped. Mask gradients by multiplication, which keeps a NaN.
  virtual void before_norm(int64_t /*step*/, StepTensors& /*tensors*/) {}
  /// True if the optimizer's update is left out in this step; equal on all ranks.
  virtual bool replaces_update(int64_t /*step*/) { return false; }
  /// Called when weights are updated and gathered on every rank; not for a skipped step.
  virtual void after_update(int64_t /*step*/, StepTensors& /*tensors*/) {}
  /// Replaces the model's weights for an evaluation, such as by averages. The model gets its own
  /// weights back when the returned handle is destroyed. Default: null, replaces nothing.
  virtual std::shared_ptr<void> lend_weights() { return nullptr; }
  /// Returns the rule's schedules for a training of the length in `scale`. A run that resumes with
  /// another length compares them, to warn of values that change. Default: none.
  virtual std::vector<Course> courses(const StepScale& /*scale*/) const { return {}; }
};

}  // namespace shoal
