#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/gradients/parameter_group.h"

namespace shoal {

/// What this rank saw of the summed gradients. Copies are shared out: of a group's parameters,
/// replica r looks at every size-th one from r on, so that each distinct number is seen once in
/// the world and no rank does another's work.
struct GradientStats {
  double square_sum = 0.0;  ///< of this rank's share
  /// Logical name, unit id included, of the first tensor with a NaN or infinity in this rank's
  /// share; empty if there is none.
  std::string nonfinite;
  int64_t nonfinite_index = 0;  ///< its place in the order of parameters
};

/// Local, one pass over the gradients: no collective. Undefined gradients count as zero. Summed in
/// float64, in an order that does not depend on threads.
GradientStats gradient_stats(const std::vector<ParameterGroup>& groups);
/// The same where each rank has its own share: `indices` are the places of its parameters, or of
/// those they are pieces of, among all.
GradientStats gradient_stats(const std::vector<Parameter>& share,
                             const std::vector<int64_t>& indices);

/// Euclidean norm over all distinct parameters. Collective over `world`, also for a rank without
/// units; the same bits on all ranks.
double global_norm(const GradientStats& survey, Communicator& world);

/// Largest absolute gradient; infinity if some gradient is not finite. Collective over `world`; the
/// same bits on all ranks.
double global_max_norm(const std::vector<ParameterGroup>& groups, Communicator& world);
double global_max_norm(const std::vector<Parameter>& share, Communicator& world);

/// The first tensor with a non-finite gradient over all ranks, for the log; empty if there is
/// none. Collective over `world`.
std::string first_nonfinite(const GradientStats& survey, Communicator& world);

/// What clipping multiplies gradients with: 1 / max(1, norm / clip_norm); 1 if clip_norm is 0.
double clip_factor(double norm, double clip_norm);

}  // namespace shoal
