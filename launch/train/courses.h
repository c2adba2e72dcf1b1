#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/recipe/recipe.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"

namespace shoal {

/// Returns lines for the log of a resumed run, one for each course (a value that depends on where
/// the training ends) that differs from the run so far, such as a cosine that a longer
/// train.duration stretches: courses of the rules, the learning rate, and durations in percent
/// whose key may not differ freely. Steps from `steps_done` to the nearer of both ends are
/// compared; `rules` and `scale` (steps of an epoch and a training) are the resumed run's.
std::vector<std::string> describe_course_changes(const Recipe& before, const Recipe& now,
                                                 const StepRules& rules, const StepScale& scale,
                                                 int64_t steps_done);

/// Warns of these lines, by `writer`, for a session that has loaded `resumed`. Masks at rest (past
/// their rule's last update in the run so far) stay so in this resume and, by an entry in what
/// `writer` saves, in later ones; with --override (`override_fixed`) they follow the recipe.
void resume_courses(const Manifest& resumed, const Recipe& recipe, Session& session,
                    bool override_fixed, CheckpointWriter::Options& writer);

}  // namespace shoal
