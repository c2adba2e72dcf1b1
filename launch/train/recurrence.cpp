#include "launch/train/recurrence.h"

namespace shoal {

bool falls_on(const Duration& every, int64_t step, const StepScale& scale) {
  if (step <= 0) return false;
  const auto multiple = [&](int64_t k) {
    return to_steps({every.unit, every.count * k, every.scale}, scale);
  };
  int64_t low = 1, high = 1;  // the first k whose multiple reaches step lies in [low, high]
  while (multiple(high) < step) {
    low = high + 1;
    high *= 2;
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (multiple(middle) < step) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return multiple(low) == step;
}

bool Recurrence::due_at(int64_t step) const {
  return every_ && !every_->is_time() && falls_on(*every_, step, scale_);
}

bool Recurrence::due_by_time(Clock::time_point now) const {
  return every_ && every_->is_time() &&
         std::chrono::duration<double>(now - last_).count() >= every_->value();
}

}  // namespace shoal
