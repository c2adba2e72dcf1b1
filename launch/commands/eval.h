#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "launch/job/launch_info.h"
#include "runtime/base/error.h"

namespace shoal {

/// `shoal eval CKPT|RUN [key=value …] [--best] [--json]`.
struct EvalArguments {
  std::string path;                    ///< a checkpoint, or a run: its newest checkpoint
  std::vector<std::string> overrides;  ///< of the recipe in the checkpoint
  bool best = false;                   ///< the run's best checkpoint instead
  bool json = false;
};

/// Evaluates a checkpoint on the validation split of its recipe, over however many ranks there are:
/// the recipe's `parallel` is ignored, experts are spread over all ranks. Rank 0 writes to `out`.
ExitCode eval(const EvalArguments& arguments, const Environment& environment, std::ostream& out);

}  // namespace shoal
