#pragma once

#include <torch/types.h>

#include <string>

#include "runtime/module/parameter.h"
#include "runtime/module/state.h"

namespace shoal {

/// `value` has the shape of `parameter` and is saved beside it, stacked by unit where it is:
/// `optimizer.m.` + `blocks.0.experts.*.fc1.weight`.
inline StateTensor state_like(const std::string& prefix, const Parameter& parameter,
                              torch::Tensor& value) {
  return {prefix + parameter.name, value, parameter.is_stacked(), parameter.unit_ids};
}

}  // namespace shoal
