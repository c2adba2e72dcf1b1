#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/module/parameter.h"

namespace shoal {

/// Σ g² of each parameter's gradient on this rank: float64 [parameters.size()], on the gradients'
/// device. Sums are taken in double and in one order, whatever the number of threads. Non-finite
/// exactly where a gradient has a non-finite value (or, in float64, one above 1e150).
/// Throws TORCH_CHECK naming a parameter that has no gradient.
torch::Tensor square_sums(const std::vector<Parameter>& parameters);

/// The name of a parameter with a non-finite gradient, for a stack the logical name of the first
/// such unit; nothing if all is finite. For the step that has been found non-finite.
std::optional<std::string> find_nonfinite(const Parameter& parameter);

}  // namespace shoal
