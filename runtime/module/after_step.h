#pragma once

namespace shoal {

/// A module that changes state of its own, such as a bias or a threshold, by what it saw in an
/// optimizer step.
class AfterStep {
 public:
  virtual ~AfterStep() = default;
  /// After each optimizer step that was not skipped. Collective.
  virtual void after_step() = 0;
};

}  // namespace shoal
