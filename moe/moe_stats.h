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

// A unit is an expert or a memory unit (a table of keys and values). A choice is one of the K units
// that a token is routed to. A router may mask a token, such as the least important ones: none of
// its choices is sent. Capacity may drop other choices. The rest become rows.

/// Sums over this rank's tokens of one forward pass through a MoE layer. The layer fills them in
/// and packs them by make_stats. Then add() sums micro-steps, and reduce() sums ranks and reports.
struct StatSums {
  torch::Tensor load_U;  ///< float64: choices of each unit before capacity, without masked tokens
  int64_t tokens = 0;
  int64_t choices = 0;     ///< all choices: sent, dropped and masked
  torch::Tensor kept;      ///< int64 scalar: choices that were sent; undefined means all
  torch::Tensor unrouted;  ///< int64 scalar: tokens without a row; undefined means 0
  // Float64, by the router's scores without noise; undefined if the router computes none.
  torch::Tensor entropy;     ///< scalar: sum over tokens of the entropy of the scores, in nats
  torch::Tensor score_U;     ///< sum of each unit's scores
  double multiply_adds = 0;  ///< work of the units for these tokens; 0 means not counted
  /// One scalar for each loss, from BalanceLosses::evaluate: sum, over its sets of tokens (such as
  /// routing groups), of unweighted loss times items on this rank. An item is a token or, if
  /// StepContext::length_b is set, a sample, so that samples of any length count alike.
  std::vector<torch::Tensor> losses;
  int64_t items = 0;  ///< divisor of `losses` in reports; 0: an item is a token
};

/// Statistics of a MoE layer on this rank: sums that add up over ranks and micro-steps.
struct MoeStats {
  std::string layer;  ///< module path of the layer
  UnitPlacement placement = UnitPlacement::contiguous(0, 1);
  std::vector<std::string> loss_names;  ///< [L]
  torch::Tensor sums;                   ///< float64, laid out by make_stats
  bool has_scores = false;              ///< true if the router computes scores; equal on all ranks
  /// True if rows are the samples' tokens in order, false if channels or mixed tokens (Sparse-MLP).
  bool rows_are_tokens = true;
  /// False with soft routing, where a load is a sum of weights and work is not proportional to it.
  bool load_is_work = true;
  int64_t num_memory_units = 0;     ///< the last units are memory units, the others experts
  torch::Tensor first_unit_T = {};  ///< in evaluation, int64: each token's best choice; -1: none

  /// Adds only the sums. TORCH_CHECK unless layer, loss_names and has_scores are equal.
  void add(const MoeStats& other);
};

/// Returns the rows' entropies, in nats, summed: a float64 scalar. 0 log 0 is 0.
torch::Tensor entropy_sum(const torch::Tensor& prob_TU);

/// Packs sums into MoeStats::sums: load of each unit, tokens, choices, kept choices, unrouted
/// tokens, entropy, multiply-adds, items, each loss and, with scores, the score of each unit.
MoeStats make_stats(const std::string& layer, const UnitPlacement& placement, const StatSums& sums,
                    const std::vector<std::string>& loss_names = {});

/// Metrics of one MoE layer over all ranks. H is entropy; scores are the router's, without noise.
struct MoeReport {
  std::string layer;
  std::vector<int64_t> load_U;                       ///< choices per unit
  int64_t num_memory_units = 0;                      ///< the last units; the others are experts
  double load_min = 0, load_max = 0, load_mean = 0;  ///< choices per unit
  double load_cv = 0;                                ///< standard deviation over mean
  double load_entropy = 0;                           ///< H(load share) / ln U, 1 = even
  double router_entropy = 0;                         ///< mean over tokens of H(scores) / ln U
  std::vector<double> mean_score_U;                  ///< mean over tokens; empty without scores
  /// I(token; unit) = H(mean score) - mean over tokens of H(scores), in nats: 0 if all tokens have
  /// equal scores, at most ln U. Unset without scores or without tokens.
  std::optional<double> mutual_information;
  int64_t dead_units = 0;  ///< units that no token chose
  double dropped = 0;      ///< share of choices not sent, dropped or masked, [0, 1]
  double unrouted = 0;     ///< share of tokens that no unit computed, [0, 1]
  int64_t tokens = 0;
  std::optional<double> multiply_adds;  ///< work of the units per token; unset if not counted
  /// Choices of each rank's units over the mean of the ranks; empty unless MoeStats::load_is_work.
  std::vector<double> rank_overload_E;
  std::vector<std::pair<std::string, double>> losses;  ///< unweighted, mean over tokens or samples

  int64_t num_experts() const { return static_cast<int64_t>(load_U.size()) - num_memory_units; }
};

/// Computes the metrics from all-reduced sums; reduce() calls it. Zero tokens give zeros.
MoeReport report(const MoeStats& stats);

/// Adds the layers of a pass to `total`, which is empty before the first; clears its first_unit_T.
void add(std::vector<MoeStats>& total, const std::vector<MoeStats>& pass);

/// Results of reduce(), for the training log and evaluation: sums over ranks.
struct ReducedStats {
  torch::Tensor numbers;  ///< [N], on the CPU
  std::vector<MoeReport> layers;
};
/// Collective. Sums statistics and other `numbers` [N] (float64) over `world`. Waits for the GPU.
ReducedStats reduce(const torch::Tensor& numbers, const std::vector<MoeStats>& layers,
                    Communicator& world);

}  // namespace shoal
