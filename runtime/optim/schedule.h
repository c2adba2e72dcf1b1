#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/base/duration.h"
#include "runtime/recipe/config.h"
#include "runtime/recipe/registry.h"

/// How the learning rate changes over a run. Torch-free.
namespace shoal {

/// Factor of the peak learning rate, once a step: a linear warm-up from 0 to 1, then the
/// member's own curve. Registered under `schedule`.
class Schedule {
 public:
  /// Length of the run and of its epochs, to turn durations into steps.
  using Context = StepScale;
  static constexpr std::string_view kNameKey = "name";
  static constexpr std::string_view kNoun = "schedule";

  /// Throws ConfigError if `warmup` cannot be counted in steps of this run.
  Schedule(const Duration& warmup, const Context& context);
  virtual ~Schedule() = default;

  /// Of optimizer step `step`, from 0: with a warm-up the first step has factor 0.
  double factor(int64_t step) const;

 protected:
  /// From the end of the warm-up on; warmup_steps() <= step < total_steps().
  virtual double after_warmup(int64_t step) const = 0;
  int64_t warmup_steps() const { return warmup_steps_; }
  /// How far `step` is on the way from the end of the warm-up to the end of the run, in [0, 1].
  double progress(int64_t step) const;

 private:
  int64_t warmup_steps_;
  int64_t total_steps_;
};

/// Options of every schedule.
struct WarmupOptions {
  Duration warmup = Duration::steps(0);
  static constexpr auto fields() {
    return std::tuple{field("warmup", &WarmupOptions::warmup,
                            "linear warm-up from 0 to the peak learning rate",
                            accepts(DurationUnit::kStep, DurationUnit::kEpoch, DurationUnit::kToken,
                                    DurationUnit::kPercent))};
  }
};

/// Stays at the peak.
class ConstantSchedule : public Schedule {
 public:
  using Options = WarmupOptions;
  ConstantSchedule(const Options& options, const Context& context)
      : Schedule(options.warmup, context) {}

 protected:
  double after_warmup(int64_t) const override { return 1.0; }
};

/// Options of the schedules that come down to `end` at the end of the run.
struct DecayOptions : WarmupOptions {
  double end = 0.0;
  static constexpr auto fields() {
    return std::tuple_cat(WarmupOptions::fields(),
                          std::tuple{field("end", &DecayOptions::end,
                                           "factor of the peak at the end", in_range(0.0, 1.0))});
  }
};

/// Half a cosine: end + (1 - end) (1 + cos(π progress)) / 2.
class CosineSchedule : public Schedule {
 public:
  using Options = DecayOptions;
  CosineSchedule(const Options& options, const Context& context)
      : Schedule(options.warmup, context), end_(options.end) {}

 protected:
  double after_warmup(int64_t step) const override;

 private:
  double end_;
};

/// A straight line: 1 - (1 - end) progress.
class LinearSchedule : public Schedule {
 public:
  using Options = DecayOptions;
  LinearSchedule(const Options& options, const Context& context)
      : Schedule(options.warmup, context), end_(options.end) {}

 protected:
  double after_warmup(int64_t step) const override;

 private:
  double end_;
};

/// Multiplied by `gamma` at each milestone.
class StepSchedule : public Schedule {
 public:
  struct Options : WarmupOptions {
    std::vector<Duration> milestones;
    double gamma = 0.1;
    static constexpr auto fields() {
      return std::tuple_cat(WarmupOptions::fields(),
                            std::tuple{field("milestones", &Options::milestones,
                                             "when to multiply, counted from the start of the run",
                                             accepts(DurationUnit::kStep, DurationUnit::kEpoch,
                                                     DurationUnit::kToken, DurationUnit::kPercent)),
                                       field("gamma", &Options::gamma, "factor of each milestone",
                                             in_range(above(0.0), 1.0))});
    }
  };
  StepSchedule(const Options& options, const Context& context);

 protected:
  double after_warmup(int64_t step) const override;

 private:
  std::vector<int64_t> milestone_steps_;
  double gamma_;
};

}  // namespace shoal
