#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/parameter.h"

namespace shoal {

/// Σ g² of each parameter's gradient on this rank: float64 [parameters.size()], on the gradients'
/// device. Sums are taken in double and in one order, whatever the number of threads. Non-finite
/// exactly where a gradient has a non-finite value (or, in float64, one above 1e150).
/// Throws TORCH_CHECK naming a parameter that has no gradient.
torch::Tensor square_sums(const std::vector<Parameter>& parameters);

/// g /= max(1, norm / clip_norm) for every gradient, `norm` being that of all gradients of the
/// model over all ranks. Leaves gradients untouched if norm <= clip_norm. clip_norm > 0.
void clip_gradients(const std::vector<Parameter>& parameters, double norm, double clip_norm);

/// The logical name of the first parameter (of a stack: its unit) with a non-finite gradient.
/// Reads every gradient; meant for the step that has been found non-finite.
std::optional<std::string> first_non_finite(const std::vector<Parameter>& parameters);

}  // namespace shoal
