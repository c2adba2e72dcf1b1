#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/job/console.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Device and number of ranks of a training.
struct RunPlace {
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  int64_t ranks = 1;  ///< how many run on this machine
};

/// Receives one line for the user.
using Tell = std::function<void(const std::string& line)>;

/// Says why a training of `world` ranks does not fit into `available` bytes, of this machine or of
/// a rank's GPU, and what to lower. Returns "" if the training fits; on a GPU, whose activations
/// are not measured, if its state does. A trial step is run only where memory might be short
/// (memory_estimate.h); `tell` is called before, and where the trial leaves activations out.
std::string memory_refusal(const CheckedRecipe& checked, int64_t world, const RunPlace& place,
                           int64_t available, const Tell& tell);

/// Throws ConfigError (exit 11) if rank 0 finds that the training does not fit, unless
/// run.memory_check is false. Returns the lines that rank 0 has shown on the console, for a log
/// that is not open yet. Collective.
std::vector<std::string> require_memory(const CheckedRecipe& checked, const RunPlace& place,
                                        Communicator& world, Console& console);

}  // namespace shoal
