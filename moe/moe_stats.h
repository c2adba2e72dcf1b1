#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "moe/exchange/unit_placement.h"
#include "parallel/comm/communicator.h"

// U units  E expert ranks  L balance losses
namespace shoal {

/// Sums over this rank's tokens of one forward pass through a layer.
struct StatSums {
  torch::Tensor load_U;  ///< float64: choices of each unit before capacity, masked ones excluded
  int64_t tokens = 0;
  int64_t choices = 0;  ///< both sent and dropped
  /// int64 scalar: choices that were sent; undefined: all.
  torch::Tensor kept;
  /// int64 scalar: tokens without a row; undefined: none.
  torch::Tensor unrouted;
  /// float64 scalar: entropy of the clean router scores, in nats; undefined without scores.
  torch::Tensor entropy;
  /// float64 [U]: sum of each unit's clean router scores; undefined without scores.
  torch::Tensor score_U;
  double multiply_adds = 0;  ///< of the units, for these tokens; 0: not counted
  /// Scalars: each balance loss, unweighted, summed over its instances times their items on this
  /// rank.
  std::vector<torch::Tensor> losses;
  int64_t items = 0;  ///< divisor of the losses where it is not the number of tokens
};

/// Statistics of a MoE layer on this rank, as sums that add up over micro-steps and ranks.
struct MoeStats {
  std::string layer;  ///< path of the layer
  UnitPlacement placement = UnitPlacement::contiguous(0, 1);
  std::vector<std::string> loss_names;  ///< [L]
  torch::Tensor sums;                   ///< float64, laid out by make_stats
  bool has_scores = false;              ///< true if the router computes scores; equal on all ranks
  /// True if the layer's rows are the samples' tokens, in order; false if they are channels or
  /// mixtures of tokens.
  bool rows_are_tokens = true;
  /// True if a unit's work is proportional to its load; else MoeReport::rank_overload_E is empty.
  bool load_is_work = true;
  int64_t num_memory_units = 0;  ///< the last ones of the units; the others are experts
  /// In evaluation: int64 [T], the first choice of each token, -1: none.
  torch::Tensor first_unit_T = {};

  /// Adds the sums of another micro-step of the same layer.
  void add(const MoeStats& other);
};

/// Entropy of each row of prob_TU, in nats, summed over rows: a float64 scalar. 0 log 0 is 0.
torch::Tensor entropy_sum(const torch::Tensor& prob_TU);

/// `sums` of the result holds, in this order: the load of each unit, tokens, choices, kept choices,
/// unrouted tokens, entropy, multiply-adds, items, one value for each loss and, if there are
/// scores, the score of each unit.
MoeStats make_stats(const std::string& layer, const UnitPlacement& placement, const StatSums& sums,
                    const std::vector<std::string>& loss_names = {});

/// The metrics of one MoE layer.
struct MoeReport {
  std::string layer;
  std::vector<int64_t> load_U;                       ///< choices per unit
  int64_t num_memory_units = 0;                      ///< the last ones; the others are experts
  double load_min = 0, load_max = 0, load_mean = 0;  ///< choices per unit
  double load_cv = 0;                                ///< standard deviation over mean
  double load_entropy = 0;                           ///< H(load share) / ln U, 1 = even
  double router_entropy = 0;                         ///< mean over tokens of H(scores) / ln U
  std::vector<double> mean_score_U;                  ///< mean over tokens; empty without scores
  /// I(token; unit) = H(mean score) - mean over tokens of H(scores), in nats: 0 if all tokens have
  /// the same scores, ln U if every score is 0 or 1 and units get equally many tokens. Unset
  /// without scores and without tokens.
  std::optional<double> mutual_information;
  int64_t dead_units = 0;  ///< units no token chose
  double dropped = 0;      ///< share of choices that were dropped, [0, 1]
  double unrouted = 0;     ///< share of tokens without a row, [0, 1]
  int64_t tokens = 0;
  std::optional<double> multiply_adds;  ///< of the units, per token; unset: not counted
  /// Choices of a rank's units over the mean of the ranks. Empty for a Nexus layer: its load is
  /// combine weights, and every slot costs its unit the same.
  std::vector<double> rank_overload_E;
  std::vector<std::pair<std::string, double>> losses;  ///< unweighted, mean over items

  int64_t num_experts() const { return static_cast<int64_t>(load_U.size()) - num_memory_units; }
};

/// Computes the metrics from all-reduced `sums`. Zero tokens give zeros.
MoeReport report(const MoeStats& stats);

/// Adds the sums of one forward pass to `total`, layer by layer; `total` starts empty.
void add(std::vector<MoeStats>& total, const std::vector<MoeStats>& pass);

/// Results of reduce().
struct ReducedStats {
  torch::Tensor numbers;  ///< [N], on the CPU
  std::vector<MoeReport> layers;
};
/// Sums `numbers` [N] (float64) and the statistics of layers in one all-reduce. Collective. Waits
/// for the GPU.
ReducedStats reduce(const torch::Tensor& numbers, const std::vector<MoeStats>& layers,
                    Communicator& world);

}  // namespace shoal
