#pragma once

namespace shoal {

/// A module that updates state of its own, such as a bias or a threshold, after each optimizer
/// step.
class AfterStep {
 public:
  virtual ~AfterStep() = default;
  /// Called after each optimizer step that was not skipped. Collective.
  virtual void after_step() = 0;
};

}  // namespace shoal
