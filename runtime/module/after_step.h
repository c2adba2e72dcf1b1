#pragma once

namespace shoal {

/// A module with state that it updates itself after each optimizer step, without gradients, such
/// as the bias with which a router balances the loads of its experts.
class AfterStep {
 public:
  virtual ~AfterStep() = default;
  /// Called after each step, unless it was skipped because a gradient was not finite. Collective.
  virtual void after_step() = 0;
};

}  // namespace shoal
