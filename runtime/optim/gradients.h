#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/module/parameter.h"

namespace shoal {

/// Σ g² of each parameter's gradient on this rank: float64 [parameters.size()], on the gradients'
/// device. Summed in double in a fixed order, for any number of threads. Non-finite exactly if a
/// gradient has a non-finite value (or, in float64, one above 1e150). Throws TORCH_CHECK naming a
/// parameter that has no gradient.
torch::Tensor square_sums(const std::vector<Parameter>& parameters);

/// Logical name of the parameter, for a stack of its first unit, if the gradient is not finite;
/// else nothing. For steps that were found non-finite.
std::optional<std::string> find_nonfinite(const Parameter& parameter);

}  // namespace shoal
