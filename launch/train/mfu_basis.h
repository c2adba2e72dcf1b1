#pragma once

#include <optional>

#include "launch/check/check_recipe.h"
#include "launch/job/launch_info.h"
#include "launch/machine/peak_rate.h"
#include "launch/model/model_work.h"
#include "launch/recipe/recipe.h"
#include "parallel/comm/rank_grid.h"
#include "runtime/base/log.h"

namespace shoal {

/// What model FLOPs utilisation (MFU) is relative to.
struct MfuBasis {
  ModelWork work;
  double samples_per_second_at_peak = 0.0;  ///< of all ranks, without dropped choices
};

/// Products of this rank, timed on all ranks at once so that it shows where they share cores; the
/// first rank of each machine warns of crowded cores and of other jobs on them. Ranks on GPUs time
/// nothing. Collective.
TimedProducts time_cores(const Recipe& recipe, const LaunchInfo& launch, const RankGrid& grid,
                         Log& log);

/// Says in the log what the peak and the work are, or why MFU is not reported. Nothing where the
/// peak of any rank, or the model's FLOPs, are not known. Collective.
std::optional<MfuBasis> mfu_basis(const CheckedRecipe& checked, const TimedProducts& timed,
                                  const RankGrid& grid, Log& log);

}  // namespace shoal
