#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "moe/moe_layer.h"
#include "tests/moe/routing/make_step.h"

namespace shoal::testing {

/// Path of the layers in tests of single ones.
inline constexpr const char* kPath = "blocks.1.moe_c";

/// By its name below the layer's path; undefined if there is none.
inline torch::Tensor parameter_of(const MoeLayer& layer, const std::string& name) {
  for (const Parameter& parameter : parameters_of(layer, kPath)) {
    if (parameter.name == kPath + ("." + name)) return parameter.tensor;
  }
  return {};
}

}  // namespace shoal::testing
