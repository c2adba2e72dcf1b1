#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/recipe/recipe.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"

namespace shoal {

/// Compares the plan of a resumed run with the plan of the run so far. The plans differ if the
/// training becomes longer, for example. Returns a line for the log for each difference in:
/// - Schedules at steps from `steps_done` to the earlier of the two planned ends: the learning rate
///   and the courses that `rules` report, such as MoCo v3's momentum.
/// - Steps that recipe keys give in percent of the training, unless both plans put the step at or
///   before `steps_done`. Keys below `schedule`, which the learning rate covers, and keys that any
///   resumed run may change (OnResume::kFree) are left out.
/// `before`: the checkpoint's recipe, after `steps_done` steps. `now`, `rules` and `scale`, which
/// converts durations to steps, are the resumed run's.
std::vector<std::string> describe_course_changes(const Recipe& before, const Recipe& now,
                                                 const StepRules& rules, const StepScale& scale,
                                                 int64_t steps_done);

/// Call after `session` has loaded the checkpoint `resumed`. Passes each line of
/// describe_course_changes to writer.warn. If the run so far planned to end the updates of sparse
/// masks before the end of training and has made the last one, but `recipe` plans later updates,
/// freezes the masks in `session`, warns, and records the step in writer.written_by, so that later
/// resumes freeze the masks too. With `override_fixed` (--override) masks follow `recipe` instead.
void resume_courses(const Manifest& resumed, const Recipe& recipe, Session& session,
                    bool override_fixed, CheckpointWriter::Options& writer);

}  // namespace shoal
