#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/gradients/parameter_group.h"

namespace shoal {

/// The summed gradients that this rank contributes to the norm: the ranks' shares are disjoint, and
/// together they cover every gradient once.
struct GradientShare {
  std::vector<Parameter> parameters;  ///< whole ones, or pieces of sharded ones
  std::vector<int64_t> places;  ///< place of each whole parameter in the order of registration
};

/// Replica r takes every size-th parameter of a group, from r on.
GradientShare share_of(const std::vector<ParameterGroup>& groups);

/// Sum of squares and first non-finite gradient of this rank's share.
struct GradientStats {
  double square_sum = 0.0;  ///< StepControl::agree adds it up to the square of the L2 norm
  /// Logical name, unit id included, of the first tensor with a NaN or infinity; empty if there is
  /// none.
  std::string nonfinite;
  int64_t nonfinite_place = 0;  ///< in the order of registration
};

/// Local, one pass over the gradients: no collective. Summed in float64, in an order that does not
/// depend on threads. Throws TORCH_CHECK naming a parameter that has no gradient.
GradientStats gradient_stats(const GradientShare& share);

/// Largest absolute gradient; infinity if some gradient is not finite. Collective over `world`; the
/// same bits on all ranks.
double global_max_norm(const GradientShare& share, Communicator& world);

/// The first tensor with a non-finite gradient over all ranks, for the log; empty if there is
/// none. Collective over `world`.
std::string first_nonfinite(const GradientStats& stats, Communicator& world);

/// The factor by which clipping scales gradients: 1 / max(1, norm / clip_norm); 1 if clip_norm is
/// 0.
double clip_factor(double norm, double clip_norm);

}  // namespace shoal
