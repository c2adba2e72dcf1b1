#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/module/parameter.h"

namespace shoal {

/// Returns Σ g² of each parameter's gradient on this rank, for the gradient norm: float64
/// [parameters.size()], on the gradients' device. Summed in double in a fixed order, for any number
/// of threads. A sum is finite unless its gradient has a value that is not; float64 values above
/// 1e150 may overflow it, too. Throws TORCH_CHECK naming a parameter that has no gradient.
torch::Tensor square_sums(const std::vector<Parameter>& parameters);
/// Returns Σ t² of each of the tensors, such as weights, as square_sums does of gradients.
torch::Tensor square_sums_of(const std::vector<torch::Tensor>& tensors);

/// Returns the parameter's name if its gradient is not finite, with the id of the first such expert
/// if it is a stack; else nullopt. For the message about a skipped step.
std::optional<std::string> find_nonfinite(const Parameter& parameter);

}  // namespace shoal
