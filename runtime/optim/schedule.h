#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/duration.h"
#include "runtime/options/registry.h"

/// Learning-rate schedules. Torch-free.
namespace shoal {

/// Factor of the peak learning rate at each step: a linear warm-up from 0 to 1, then the curve of
/// the derived class, such as a cosine. Chosen by the recipe's section `schedule`.
class Schedule {
 public:
  /// Length of the run and of its epochs, to convert durations to steps.
  using Context = StepScale;
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "schedule";

  /// Throws ConfigError if `warmup` cannot be converted to steps of this run.
  Schedule(const Duration& warmup, const Context& context);
  virtual ~Schedule() = default;

  /// Factor at optimizer step `step`, counted from 0; with a warm-up the first step has factor 0.
  double factor(int64_t step) const;

 protected:
  /// Factor at `step`, counted from the start of the training, once the warm-up is over.
  virtual double after_warmup(int64_t step) const = 0;
  /// Position of `step` between the end of the warm-up and the end of the run, in [0, 1].
  double progress(int64_t step) const;

 private:
  int64_t warmup_steps_;
  int64_t total_steps_;
};

}  // namespace shoal
