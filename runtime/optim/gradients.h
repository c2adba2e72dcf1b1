#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/module/parameter.h"

namespace shoal {

/// Returns Σ g² of each parameter's gradient on this rank, for the gradient norm: float64
/// [parameters.size()], on the gradients' device. Summed in double in a fixed order, for any number
/// of threads. Not finite exactly if a gradient has a value that is not finite (or, in float64, one
/// above 1e150). Throws TORCH_CHECK naming a parameter that has no gradient.
torch::Tensor square_sums(const std::vector<Parameter>& parameters);

/// Returns the parameter's name if its gradient is not finite, else nullopt; for a stack of experts
/// the name of the first expert's part that is not. For the message about such a step.
std::optional<std::string> find_nonfinite(const Parameter& parameter);

}  // namespace shoal
