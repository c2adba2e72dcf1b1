#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

namespace shoal::testing {

/// Overwrites every parameter with values that depend on its logical name and, in a stack, on the
/// unit's global id, so that layers and ranks get different numbers and a sharded model the same
/// as a whole one. Norm weights stay near 1.
void fill_parameters(torch::nn::Module& module, double scale = 0.5);

}  // namespace shoal::testing
