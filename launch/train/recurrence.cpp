#include "launch/train/recurrence.h"

#include <algorithm>
#include <ranges>

namespace shoal {
namespace {

int64_t multiple(const Duration& every, int64_t k, const StepScale& scale) {
  return to_steps({every.unit, every.count * k, every.scale}, scale);
}

/// The first k whose multiple of `every` is at `step` or behind it.
int64_t first_from(const Duration& every, int64_t step, const StepScale& scale) {
  int64_t high = 1;  // k lies in (high / 2, high]
  while (multiple(every, high, scale) < step) high *= 2;
  const auto range = std::views::iota(high / 2 + 1, high + 1);
  return *std::ranges::partition_point(range,
                                       [&](int64_t k) { return multiple(every, k, scale) < step; });
}

/// Number of steps up to `step` on which a multiple of `every` falls. Of periods below a step
/// several multiples fall on each.
int64_t times_until(const Duration& every, int64_t step, const StepScale& scale) {
  return std::min(step, first_from(every, step + 1, scale) - 1);
}

}  // namespace

bool falls_on(const Duration& every, int64_t step, const StepScale& scale) {
  return step > 0 && multiple(every, first_from(every, step, scale), scale) == step;
}

int64_t times_left(const Duration& every, int64_t step, const StepScale& scale,
                   double seconds_left) {
  if (every.is_time()) return static_cast<int64_t>(seconds_left / every.value()) + 1;
  const int64_t end = scale.total_steps;
  return times_until(every, end, scale) - times_until(every, step - 1, scale) +
         (falls_on(every, end, scale) ? 0 : 1);
}

bool Recurrence::due_at(int64_t step) const {
  return every_ && !every_->is_time() && falls_on(*every_, step, scale_);
}

bool Recurrence::due_by_time(Clock::time_point now) const {
  return every_ && every_->is_time() &&
         std::chrono::duration<double>(now - last_).count() >= every_->value();
}

}  // namespace shoal
