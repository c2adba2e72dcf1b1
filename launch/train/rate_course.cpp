#include "launch/train/rate_course.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace shoal {
namespace {

/// The learning rate of each step of a recipe's run.
class RateCourse {
 public:
  RateCourse(const Recipe& recipe, StepScale scale) : peak_(peak_of(recipe)) {
    scale.samples_per_step = recipe.train.batch;
    scale.total_steps = 0;
    scale.total_steps = to_steps(recipe.train.duration, scale);
    total_steps_ = scale.total_steps;
    schedule_ = Registry<Schedule>::create(recipe.schedule, scale);
  }
  int64_t total_steps() const { return total_steps_; }
  double rate(int64_t step) const { return peak_ * schedule_->factor(step); }

 private:
  static double peak_of(const Recipe& recipe) {
    for (const config::FieldInfo& field : recipe.optimizer.member()->options_type().fields) {
      if (field.name != "lr") continue;
      return *static_cast<const double*>(field.member_of(recipe.optimizer.erased_options()));
    }
    TORCH_CHECK(false, "the options of ", recipe.optimizer.name(), " are no OptimizerOptions");
  }

  double peak_;
  int64_t total_steps_ = 0;
  std::shared_ptr<Schedule> schedule_;
};

}  // namespace

std::string describe_rate_change(const Recipe& before, const Recipe& now, const StepScale& scale,
                                 int64_t steps_done) {
  constexpr int64_t kMostCompared = 1000;
  const RateCourse old_course(before, scale), new_course(now, scale);
  // Of a run that was finished the rate at its end is compared.
  const int64_t end =
      std::max(steps_done + 1, std::min(old_course.total_steps(), new_course.total_steps()));
  const int64_t stride = std::max<int64_t>(1, (end - steps_done) / kMostCompared);
  for (int64_t step = steps_done; step < end; step += stride) {
    const double old_rate = old_course.rate(step), new_rate = new_course.rate(step);
    if (std::abs(new_rate - old_rate) <= 1e-9 * std::max(old_rate, new_rate)) continue;
    const bool is_longer = old_course.total_steps() != new_course.total_steps();
    return fmt::format(
        "the learning rate differs from the schedule so far: at step {} it is {:.2e} instead of "
        "{:.2e}{}",
        step + 1, new_rate, old_rate,
        is_longer
            ? fmt::format(", since the schedule {} now spans {} steps instead of {}",
                          now.schedule.name(), new_course.total_steps(), old_course.total_steps())
            : "");
  }
  return "";
}

}  // namespace shoal
