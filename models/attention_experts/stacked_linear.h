#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// D inputs  O outputs  R rows of all units  u units
namespace shoal {

/// Applies each unit's linear layer to that unit's rows: the first rows_u[0] rows of x get the
/// first unit's weight and bias, the next rows_u[1] the second's, and so on; counts may be 0. A
/// single autograd node, which writes the weight gradients of all units into one tensor.
///
/// Shapes: x [R, D], weight [u, D, O], bias [u, O] -> [R, O]; one dtype. Source: shoal's own.
torch::Tensor stacked_linear(const torch::Tensor& x_RD, const std::vector<int64_t>& rows_u,
                             const torch::Tensor& weight_uDO, const torch::Tensor& bias_uO);

}  // namespace shoal
