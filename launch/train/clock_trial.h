#pragma once

#include <cstdint>
#include <optional>

#include "launch/data/open_split.h"
#include "launch/recipe/recipe.h"
#include "launch/step/session.h"

namespace shoal {

/// Key in a manifest's written_by: the time, such as `1min30s`, that the recipe's train.duration
/// was before a trial made a number of steps of it.
inline constexpr const char* kWrittenClock = "duration_by_clock";

/// Times that a trial measures, in seconds.
struct TrialTimes {
  double step_s = 0.0;  ///< mean of the trial's second half, as its first steps are slower
  double evaluation_s = 0.0;
};

/// Trains `session`, which the caller then discards, for 20 steps or about a tenth of
/// train.duration, a time; then evaluates, unless evaluate.every is never. Collective; ranks' times
/// differ. A signal does not end it.
TrialTimes run_trial(Session& session, const Recipe& recipe, const JobData& data);

/// Returns the most steps, maybe 0, that together with their evaluations take no longer than
/// train.duration, a time. `scale`: samples and tokens; its total_steps is ignored.
int64_t steps_in_time(const Recipe& recipe, const TrialTimes& times, StepScale scale);

/// Returns the train.duration, in steps, of the checkpoint that run.on_existing: resume continues
/// from; nullopt if there is none to resume. Collective. Throws Error (exit 12) if those steps were
/// not timed for the recipe's train.duration, else as read_newest_manifest (`pass_unreadable`).
std::optional<Duration> resumed_duration(const Recipe& recipe, Communicator& world,
                                         bool pass_unreadable);

}  // namespace shoal
