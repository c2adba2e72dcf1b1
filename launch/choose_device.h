#pragma once

#include "launch/recipe.h"
#include "launch/world.h"
#include "runtime/device.h"

namespace shoal {

/// The device that a recipe's run.device gives this rank, with the reason for the log.
///
/// Models run on the CPU: auto says so if a GPU is left unused, and cuda throws Error (exit 11)
/// that names what is missing. A GPU that was asked for is never replaced quietly.
DeviceChoice choose_device(DeviceKind wanted, const LaunchInfo& launch,
                           const DevicePlaces& places = {});

}  // namespace shoal
