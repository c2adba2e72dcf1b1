#include "launch/train/recurrence.h"

#include <algorithm>
#include <ranges>

namespace shoal {

bool falls_on(const Duration& every, int64_t step, const StepScale& scale) {
  if (step <= 0) return false;
  const auto multiple = [&](int64_t k) {
    return to_steps({every.unit, every.count * k, every.scale}, scale);
  };
  int64_t high = 1;  // the first k whose multiple reaches step lies in (high / 2, high]
  while (multiple(high) < step) high *= 2;
  const auto range = std::views::iota(high / 2 + 1, high + 1);
  const auto first =
      std::ranges::partition_point(range, [&](int64_t k) { return multiple(k) < step; });
  return multiple(*first) == step;
}

int64_t times_left(const Duration& every, int64_t step, const StepScale& scale,
                   double seconds_left) {
  if (every.is_time()) return static_cast<int64_t>(seconds_left / every.value()) + 1;
  const int64_t period = to_steps(every, scale), end = scale.total_steps;
  return end / period - (step - 1) / period + (end % period == 0 ? 0 : 1);
}

bool Recurrence::due_at(int64_t step) const {
  return every_ && !every_->is_time() && falls_on(*every_, step, scale_);
}

bool Recurrence::due_by_time(Clock::time_point now) const {
  return every_ && every_->is_time() &&
         std::chrono::duration<double>(now - last_).count() >= every_->value();
}

}  // namespace shoal
