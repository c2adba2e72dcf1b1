#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

// D inputs  O outputs  R rows of all units  u units
namespace shoal {

/// Linear layers of units, each applied to rows of its own: the first rows_u[0] rows of x times the
/// first unit's weights plus its bias, and so on; a unit may have no rows. One node of the graph,
/// which writes the weight gradients of all units into one tensor.
///
/// Shapes: x [R, D], weight [u, D, O], bias [u, O] -> [R, O]; one dtype. Source: shoal's own.
torch::Tensor stacked_linear(const torch::Tensor& x_RD, const std::vector<int64_t>& rows_u,
                             const torch::Tensor& weight_uDO, const torch::Tensor& bias_uO);

}  // namespace shoal
