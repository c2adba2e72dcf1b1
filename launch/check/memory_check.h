#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/job/console.h"
#include "parallel/comm/communicator.h"

namespace shoal {

/// Where the ranks of a training run.
struct RunPlace {
  c10::Device device = c10::Device(c10::DeviceType::CPU);  ///< device of this rank
  int64_t ranks = 1;  ///< how many ranks of the job run on this machine
};

/// Receives one line for the user.
using Tell = std::function<void(const std::string& line)>;

/// Returns "" if a training by `world` ranks fits into memory, else a message: what a rank would
/// take and which keys to change. `available`: free bytes of this machine, or of the GPU. On CPUs,
/// trial steps measure the activations unless an upper bound of them fits; `tell` announces the
/// trial and reports its failure. On a GPU only the memory besides activations has to fit.
std::string memory_refusal(const CheckedRecipe& checked, int64_t world, const RunPlace& place,
                           int64_t available, const Tell& tell);

/// Throws ConfigError (exit 11) on every rank if rank 0 finds that the training does not fit,
/// unless run.memory_check is false. Returns the lines that rank 0 has shown on the console, for a
/// log that is not open yet. Collective.
std::vector<std::string> require_memory(const CheckedRecipe& checked, const RunPlace& place,
                                        Communicator& world, Console& console);

}  // namespace shoal
