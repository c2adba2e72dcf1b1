#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/gradients/parameter_group.h"

namespace shoal {

/// The part of the summed gradients that this rank measures for the global gradient norm (clipping,
/// NaN). The ranks' shares are disjoint, and together they cover every gradient once.
struct GradientShare {
  std::vector<Parameter> parameters;  ///< whole or, if the optimizer is sharded, flat pieces
  std::vector<int64_t> places;        ///< for each: index in the list of all parameters
};

/// Returns this rank's share without a sharded optimizer: of n ranks that hold copies of a group's
/// parameters, the r-th takes the parameters r, r + n, r + 2n, ...
GradientShare share_of(const std::vector<ParameterGroup>& groups);

/// Sums of squares and first non-finite gradient of this rank's share.
struct GradientStats {
  double square_sum = 0.0;          ///< the sum over ranks is the square of the global L2 norm
  std::vector<double> square_sums;  ///< of each parameter of the share
  /// Name of the first parameter (in an expert stack: expert) with a NaN or infinity, or "".
  std::string nonfinite;
  int64_t nonfinite_place = 0;  ///< that parameter's index in the list of all
};

/// Measures a share in one pass, without communication. Sums are float64, in an order that does not
/// depend on the number of threads. Throws TORCH_CHECK naming a parameter that has no gradient.
GradientStats gradient_stats(const GradientShare& share);

/// Returns the largest absolute gradient of all ranks, infinity if one is not finite. Collective.
double global_max_norm(const GradientShare& share, Communicator& world);

/// Names the first parameter with a non-finite gradient on any rank, or "". Collective.
std::string first_nonfinite(const GradientStats& stats, Communicator& world);

/// Returns the factor for clipping: 1 / max(1, norm / clip_norm); 1 if clip_norm is 0.
double clip_factor(double norm, double clip_norm);

}  // namespace shoal
