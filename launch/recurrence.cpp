#include "launch/recurrence.h"

#include <algorithm>

namespace shoal {

bool falls_on(const Duration& every, int64_t step, const StepScale& scale) {
  if (step <= 0) return false;
  const int64_t first = std::max<int64_t>(1, to_steps(every, scale));
  // Rounding up makes the k-th multiple at most k * first, and more than k * (first - 1).
  int64_t low = step / first;
  int64_t high = first > 1 ? step / (first - 1) + 1 : step;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const Duration multiple{every.unit, every.count * middle, every.scale};
    if (to_steps(multiple, scale) < step) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low >= 1 && to_steps({every.unit, every.count * low, every.scale}, scale) == step;
}

Recurrence::Recurrence(const Duration& every, const StepScale& scale, Clock::time_point start)
    : every_(every), scale_(scale), last_(start) {}

bool Recurrence::due_at(int64_t step) const {
  return !every_.is_time() && falls_on(every_, step, scale_);
}

bool Recurrence::due_by_time(Clock::time_point now) const {
  return every_.is_time() && std::chrono::duration<double>(now - last_).count() >= every_.value();
}

}  // namespace shoal
