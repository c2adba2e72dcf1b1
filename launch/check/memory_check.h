#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launch/check/check_recipe.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Where a training is to run.
struct RunPlace {
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  int64_t ranks = 1;  ///< of this machine
};

/// Receives one line for the user.
using Tell = std::function<void(const std::string& line)>;

/// Why a training of `world` ranks does not fit into `available` bytes, of this machine or of a
/// rank's GPU, and what to lower; "" if it fits, and of a GPU, whose activations are not measured,
/// if its state does. Only where memory might be short a trial step is run (memory_estimate.h);
/// `tell` is told before, and where the trial leaves activations out.
std::string memory_refusal(const CheckedRecipe& checked, int64_t world, const RunPlace& place,
                           int64_t available, const Tell& tell);

/// Collective. Throws ConfigError (exit 11) if rank 0 finds that the training does not fit, unless
/// run.memory_check is false. `tell` is called on rank 0.
void require_memory(const CheckedRecipe& checked, const RunPlace& place, Communicator& world,
                    const Tell& tell);

}  // namespace shoal
