#include "runtime/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>
#include <vector>

#include "runtime/options/config.h"

namespace shoal {

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

namespace {

/// Options of every schedule.
struct WarmupOptions {
  Duration warmup = Duration::steps(0);
  static constexpr auto fields() {
    return std::tuple{field("warmup", &WarmupOptions::warmup,
                            "linear warm-up from 0 to the peak learning rate", kPlaceUnits)};
  }
};

class ConstantSchedule : public Schedule {
 public:
  using Options = WarmupOptions;
  ConstantSchedule(const Options& options, const Context& context)
      : Schedule(options.warmup, context) {}

 protected:
  double after_warmup(int64_t) const override { return 1.0; }
};

/// The schedules that come down to `end` at the end of the run.
class DecaySchedule : public Schedule {
 public:
  struct Options : WarmupOptions {
    double end = 0.0;
    static constexpr auto fields() {
      return std::tuple_cat(WarmupOptions::fields(),
                            std::tuple{field("end", &Options::end, "final fraction of the peak",
                                             in_range(0.0, 1.0))});
    }
  };
  DecaySchedule(const Options& options, const Context& context)
      : Schedule(options.warmup, context), end_(options.end) {}

 protected:
  double end_;
};

class CosineSchedule : public DecaySchedule {
 public:
  using DecaySchedule::DecaySchedule;

 protected:
  double after_warmup(int64_t step) const override {
    return end_ + (1.0 - end_) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress(step)));
  }
};

class LinearSchedule : public DecaySchedule {
 public:
  using DecaySchedule::DecaySchedule;

 protected:
  double after_warmup(int64_t step) const override { return 1.0 - (1.0 - end_) * progress(step); }
};

class StepSchedule : public Schedule {
 public:
  struct Options : WarmupOptions {
    std::vector<Duration> milestones;
    double gamma = 0.1;
    static constexpr auto fields() {
      return std::tuple_cat(
          WarmupOptions::fields(),
          std::tuple{field("milestones", &Options::milestones,
                           "when to multiply, counted from the start of the run", kPlaceUnits),
                     field("gamma", &Options::gamma, "factor at each milestone",
                           in_range(above(0.0), 1.0))});
    }
  };
  StepSchedule(const Options& options, const Context& context)
      : Schedule(options.warmup, context), gamma_(options.gamma) {
    for (const Duration& milestone : options.milestones) {
      milestone_steps_.push_back(to_steps(milestone, context));
    }
  }

 protected:
  double after_warmup(int64_t step) const override {
    const auto passed = std::ranges::count_if(
        milestone_steps_, [step](int64_t milestone) { return milestone <= step; });
    return std::pow(gamma_, static_cast<double>(passed));
  }

 private:
  std::vector<int64_t> milestone_steps_;
  double gamma_;
};

const Registration<Schedule, ConstantSchedule> constant{"constant", "stays at the peak"};
const Registration<Schedule, CosineSchedule> cosine{"cosine", "half a cosine down to `end`"};
const Registration<Schedule, LinearSchedule> linear{"linear", "a straight line down to `end`"};
const Registration<Schedule, StepSchedule> step{"step", "times `gamma` at each milestone"};

}  // namespace
}  // namespace shoal
