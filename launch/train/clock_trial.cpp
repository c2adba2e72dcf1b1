#include "launch/train/clock_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <vector>

#include "launch/evaluate/evaluation.h"
#include "launch/runs/run_folder.h"
#include "launch/train/recurrence.h"
#include "parallel/checkpoint/checkpoint_load.h"

namespace shoal {
namespace {

double time_of_step(Session& session, double asked_s) {
  constexpr std::ptrdiff_t kSteps = 20;
  const bool decides = session.grid().world->rank() == 0;
  const auto start = Recurrence::Clock::now();
  std::vector<double> ends{0.0};
  // Of short steps more, up to ten seconds, for a better mean; of long ones fewer.
  for (bool is_last = false; !is_last; ends.push_back(seconds_since(start))) {
    const double limit_s = std::ssize(ends) < kSteps ? asked_s / 10 : std::min(10.0, asked_s / 50);
    is_last = session.step({.stop = decides && ends.back() >= limit_s}).agreed.stop;
  }
  const size_t last = ends.size() - 1, half = last / 2;
  return (ends[last] - ends[half]) / static_cast<double>(last - half);
}

}  // namespace

TrialTimes run_trial(Session& session, const Recipe& recipe, const JobData& data) {
  TrialTimes times{time_of_step(session, recipe.train.duration.value())};
  if (!recipe.evaluate.every) return times;
  const EvaluationParts parts{.task = session.task(),
                              .recipe = recipe,
                              .data = data.valid,
                              .grid = session.grid(),
                              .train_data = &data.train,
                              .sets = data.sets};
  times.evaluation_s = evaluate(parts, session.steps_done()).seconds;
  return times;
}

int64_t steps_in_time(const Recipe& recipe, const TrialTimes& times, StepScale scale) {
  const double asked_s = recipe.train.duration.value(), step_s = std::max(1e-9, times.step_s);
  const std::optional<Duration>& every = recipe.evaluate.every;
  const auto fits = [&](int64_t steps) {
    scale.total_steps = steps;
    const double steps_s = step_s * static_cast<double>(steps);
    const int64_t evaluations = every ? times_left(*every, 1, scale, steps_s) : 0;
    return steps_s + times.evaluation_s * static_cast<double>(evaluations) <= asked_s;
  };
  const auto range = std::views::iota(int64_t{1}, static_cast<int64_t>(asked_s / step_s) + 2);
  return *std::ranges::partition_point(range, fits) - 1;
}

std::optional<Duration> resumed_duration(const Recipe& recipe, Communicator& world,
                                         bool pass_unreadable) {
  if (recipe.run.on_existing != OnExisting::kResume) return std::nullopt;
  const std::optional<Manifest> manifest =
      read_newest_manifest(RunFolder{run_path(recipe.run)}.checkpoints(), world, pass_unreadable);
  if (!manifest) return std::nullopt;
  const Duration steps = stored_recipe(*manifest).train.duration;
  const auto timed = manifest->written_by.find(kWrittenClock);
  const std::string clock = timed == manifest->written_by.end() ? "" : timed->second;
  const std::string kept = to_text(steps), asked = to_text(recipe.train.duration);
  if (clock == asked) return steps;
  throw Error(ExitCode::kMismatch,
              fmt::format("train.duration: {} cannot be timed for a run that has begun: it trains "
                          "for {}{}",
                          asked, kept, clock.empty() ? "" : ", timed for " + clock),
              fmt::format("resume it with train.duration={}, or with more steps", kept));
}

}  // namespace shoal
