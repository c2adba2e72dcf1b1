#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "runtime/base/duration.h"

namespace shoal {

/// True if a multiple of `every` ends exactly with step `step` (steps done so far, from 1):
/// step = to_steps(k * every) for some k ≥ 1. `every` counts steps, epochs, tokens or percent.
bool falls_on(const Duration& every, int64_t step, const StepScale& scale);

/// Number of times that an event is still due at step `step` and behind it: at multiples of
/// `every`, which may be a time, and at the end of the training. `seconds_left`: time of the steps
/// left.
int64_t times_left(const Duration& every, int64_t step, const StepScale& scale,
                   double seconds_left);

/// A recurring event: every so many steps or epochs, computed alike on all ranks, or at time
/// intervals, which rank 0 measures and the ranks have to agree on.
class Recurrence {
 public:
  using Clock = std::chrono::steady_clock;
  /// Without `every` the event is never due. `start`: start of the first time interval.
  Recurrence(const std::optional<Duration>& every, const StepScale& scale, Clock::time_point start)
      : every_(every), scale_(scale), last_(start) {}
  /// True if the event is due at this step; always false if `every` is a time.
  bool due_at(int64_t step) const;
  /// True if the time `every` has passed since the start or the last restart(); else false.
  bool due_by_time(Clock::time_point now) const;
  void restart(Clock::time_point now) { last_ = now; }

 private:
  std::optional<Duration> every_;
  StepScale scale_;
  Clock::time_point last_;
};

inline double seconds_since(Recurrence::Clock::time_point start) {
  return std::chrono::duration<double>(Recurrence::Clock::now() - start).count();
}

}  // namespace shoal
