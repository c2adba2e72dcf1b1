#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/recipe/recipe.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"

namespace shoal {

/// Returns a line for the log of a resumed run for each course that differs from the run so far. A
/// course is a value that depends on where the training ends: the learning rate, which a longer
/// train.duration stretches if its schedule is a cosine; the courses that `rules` report, such as
/// MoCo v3's momentum; and the step that a duration in percent of the training stands for. Such
/// durations are left out below `schedule`, where they shape the learning rate, and under keys that
/// any resumed run may change (OnResume::kFree).
///
/// `before`: the checkpoint's recipe, after `steps_done` steps. `now`, `rules` and `scale`, which
/// converts durations to steps, are the resumed run's. Values are compared at steps from
/// `steps_done` to the earlier of both ends, durations only if they end after `steps_done`.
std::vector<std::string> describe_course_changes(const Recipe& before, const Recipe& now,
                                                 const StepRules& rules, const StepScale& scale,
                                                 int64_t steps_done);

/// Call after `session` has loaded the checkpoint `resumed`. Passes each line of
/// describe_course_changes to writer.warn. The run so far may be past the last update of its sparse
/// masks, ahead of its own end, while `recipe` plans further updates. Then freezes the masks in
/// `session`, warns through writer.warn, and records the step in writer.written_by, so that later
/// resumes freeze them too. With `override_fixed` (--override) masks follow `recipe` instead.
void resume_courses(const Manifest& resumed, const Recipe& recipe, Session& session,
                    bool override_fixed, CheckpointWriter::Options& writer);

}  // namespace shoal
