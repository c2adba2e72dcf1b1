#pragma once

#include <optional>

#include "launch/check/check_recipe.h"
#include "launch/job/launch_info.h"
#include "launch/model/model_work.h"
#include "launch/step/session.h"
#include "runtime/base/log.h"

namespace shoal {

/// The work and the peak that model FLOPs utilisation (MFU) is relative to.
struct MfuBasis {
  ModelWork work;
  double samples_per_second_at_peak = 0.0;  ///< all ranks', without dropped choices
};

/// Measures what the ranks' cores can do, warns of crowded cores, and logs what the peak and the
/// work are, or why MFU is not reported. Returns nothing where no step is left, or where the peak
/// of any rank, or the model's FLOPs, are not known. Collective.
std::optional<MfuBasis> mfu_basis(const CheckedRecipe& checked, const LaunchInfo& launch,
                                  const Session& session, Log& log);

}  // namespace shoal
