#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/recipe/recipe.h"
#include "launch/step/session.h"
#include "parallel/checkpoint/checkpoint.h"

namespace shoal {

/// Lines for the log of a resumed run, one for each part of the training that is relative to its
/// end and differs from the run so far, such as a cosine that a longer train.duration stretches:
/// the courses of the rules, the learning rate, and every duration in percent whose key may not
/// differ freely. The steps from `steps_done` to the nearer of both ends are compared; `rules` and
/// `scale` are those of the resumed run.
std::vector<std::string> describe_course_changes(const Recipe& before, const Recipe& now,
                                                 const StepRules& rules, const StepScale& scale,
                                                 int64_t steps_done);

/// Warns of these lines, by `writer`, for a session that has loaded `resumed`. Masks at rest,
/// behind their rule's last update in the run so far, stay so in this resume and, by what it gives
/// `writer`, in later ones; with --override (`override_fixed`) they follow the recipe.
void resume_courses(const Manifest& resumed, const Recipe& recipe, Session& session,
                    bool override_fixed, CheckpointWriter::Options& writer);

}  // namespace shoal
