#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "moe/unit_placement.h"

// U units  E expert ranks  L balance losses
namespace shoal {

/// What a MoE layer did on this rank: raw sums, so that sums over micro-steps and ranks mean
/// something. A fixed number of values, whatever the model's size.
struct MoeStats {
  std::string layer;  ///< path of the layer
  UnitPlacement placement = UnitPlacement::contiguous(0, 1);
  std::vector<std::string> loss_names;  ///< [L]
  /// float64 [U + 4 + L]: choices per unit before capacity, masked tokens left out; tokens;
  /// choices; choices that survived; entropy of the clean router scores, in nats, summed over
  /// tokens; each loss's undivided values, summed with the instance's tokens on this rank as
  /// weight.
  torch::Tensor sums;

  /// Adds the sums of the same layer from another micro-step.
  void add(const MoeStats& other);
};

/// MoeStats in numbers to log.
struct MoeReport {
  std::string layer;
  std::vector<int64_t> load_U;                       ///< choices per unit
  double load_min = 0, load_max = 0, load_mean = 0;  ///< choices per unit
  double load_cv = 0;                                ///< standard deviation over mean
  double load_entropy = 0;                           ///< H(load share) / ln U, 1 = even
  double router_entropy = 0;                         ///< mean over tokens of H(scores) / ln U
  int64_t dead_units = 0;                            ///< units no token chose
  double dropped = 0;  ///< share of choices that were not sent, [0, 1]
  int64_t tokens = 0;
  std::vector<double> rank_overload_E;  ///< choices of a rank's units over the mean of the ranks
  std::vector<std::pair<std::string, double>> losses;  ///< undivided, mean over tokens
};

/// Numbers of sums that were added up over all ranks (all_reduce of `sums`). Zero tokens give
/// zeros.
MoeReport report(const MoeStats& stats);

}  // namespace shoal
