#pragma once

#include <optional>
#include <string>

#include "launch/train/check_recipe.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Where a training is to run.
struct RunPlace {
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  int64_t ranks = 1;  ///< of this machine
};

/// Why a training of `world` ranks does not fit into `available` bytes, of this machine or of a
/// rank's GPU, and what to lower; "" if it fits, and of a GPU, whose activations are not measured,
/// if its state does. Only where memory might be short a trial step is run (memory_estimate.h).
std::string memory_refusal(const CheckedRecipe& checked, int64_t world, const RunPlace& place,
                           int64_t available);

/// Collective. Throws ConfigError (exit 11) if rank 0 finds that the training does not fit, unless
/// run.memory_check is false.
void require_memory(const CheckedRecipe& checked, const RunPlace& place, Communicator& world);

}  // namespace shoal
