#pragma once

#include <cstdint>
#include <string>

#include "launch/job/recipe.h"
#include "runtime/base/duration.h"

namespace shoal {

/// A line for the log if the learning rate of a resumed run differs from the schedule of the run so
/// far, such as a cosine that a longer train.duration stretches; else "". Compared are the
/// steps that are left of both, `steps_done` in; `scale` is that of the resumed run.
std::string describe_rate_change(const Recipe& before, const Recipe& now, const StepScale& scale,
                                 int64_t steps_done);

}  // namespace shoal
