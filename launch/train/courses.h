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
/// MoCo v3's momentum; and the steps of recipe keys that are durations in percent of the
/// training. Keys below `schedule`, which the learning rate covers, and keys that any resumed run
/// may change (OnResume::kFree) are not compared.
///
/// `before`: the checkpoint's recipe, after `steps_done` steps. `now`, `rules` and `scale`, which
/// converts durations to steps, are the resumed run's. Values are compared at steps from
/// `steps_done` to the earlier of both ends, durations only if they end after `steps_done`.
std::vector<std::string> describe_course_changes(const Recipe& before, const Recipe& now,
                                                 const StepRules& rules, const StepScale& scale,
                                                 int64_t steps_done);

/// Call after `session` has loaded the checkpoint `resumed`. Passes each line of
/// describe_course_changes to writer.warn. If the run so far has finished updating its sparse
/// masks, before its end, and `recipe` plans later updates, freezes the masks in `session`, warns
/// of it, and records the step in writer.written_by, so that later resumes freeze the masks too.
/// With `override_fixed` (--override) masks follow `recipe` instead.
void resume_courses(const Manifest& resumed, const Recipe& recipe, Session& session,
                    bool override_fixed, CheckpointWriter::Options& writer);

}  // namespace shoal
