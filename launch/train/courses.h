#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/recipe/recipe.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"

namespace shoal {

/// Compares the recipe `before` of a checkpoint at `steps_done` steps with the recipe `now` of the
/// run that resumes it. Returns a line for the log for each:
/// - Course (a quantity scheduled over the training: the learning rate, or one of `rules`, such as
///   MoCo v3's momentum) that differs at a coming step, up to the earlier of the two planned ends.
/// - Key in percent of the training that means another step than before, if either step is still to
///   come. Leaves out keys of `schedule`, which the learning rate shows, and OnResume::kFree keys.
/// `rules` and `scale`, which converts durations to steps, are the resumed run's.
std::vector<std::string> describe_course_changes(const Recipe& before, const Recipe& now,
                                                 const StepRules& rules, const StepScale& scale,
                                                 int64_t steps_done);

/// Call after `session` has loaded the checkpoint `resumed`. Passes each line of
/// describe_course_changes to writer.warn, the log. A recipe may end the updates of sparse masks
/// before the end of the training. If the run so far has passed that step, but `recipe` plans later
/// updates, freezes the masks in `session`, warns, and stores the step in writer.written_by, which
/// every later checkpoint keeps for the next resume. With `override_fixed` (--override) masks
/// follow `recipe` instead.
void resume_courses(const Manifest& resumed, const Recipe& recipe, Session& session,
                    bool override_fixed, CheckpointWriter::Options& writer);

}  // namespace shoal
