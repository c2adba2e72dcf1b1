#include "runtime/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shoal {
namespace {

const Registration<Schedule, ConstantSchedule> constant{"constant", "stays at the peak"};
const Registration<Schedule, CosineSchedule> cosine{"cosine", "half a cosine down to `end`"};
const Registration<Schedule, LinearSchedule> linear{"linear", "a straight line down to `end`"};
const Registration<Schedule, StepSchedule> step{"step", "times `gamma` at each milestone"};

}  // namespace

Schedule::Schedule(const Duration& warmup, const Context& context)
    : warmup_steps_(to_steps(warmup, context)), total_steps_(context.total_steps) {}

double Schedule::factor(int64_t step) const {
  if (step < warmup_steps_) return static_cast<double>(step) / static_cast<double>(warmup_steps_);
  return after_warmup(step);
}

double Schedule::progress(int64_t step) const {
  if (step >= total_steps_) return 1.0;
  return static_cast<double>(step - warmup_steps_) /
         static_cast<double>(total_steps_ - warmup_steps_);
}

double CosineSchedule::after_warmup(int64_t step) const {
  return end_ + (1.0 - end_) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress(step)));
}

double LinearSchedule::after_warmup(int64_t step) const {
  return 1.0 - (1.0 - end_) * progress(step);
}

StepSchedule::StepSchedule(const Options& options, const Context& context)
    : Schedule(options.warmup, context), gamma_(options.gamma) {
  for (const Duration& milestone : options.milestones) {
    milestone_steps_.push_back(to_steps(milestone, context));
  }
}

double StepSchedule::after_warmup(int64_t step) const {
  const auto passed = std::count_if(milestone_steps_.begin(), milestone_steps_.end(),
                                    [step](int64_t milestone) { return milestone <= step; });
  return std::pow(gamma_, static_cast<double>(passed));
}

}  // namespace shoal
