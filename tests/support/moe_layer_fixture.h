#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "moe/moe_layer.h"
#include "moe/routers/importance_score.h"
#include "moe/routers/top_k.h"
#include "tests/support/ranks.h"

// B samples  R rows per sample  D width
namespace shoal::testing {

/// A layer with a loss around it, small enough to be run in many layouts. Everything is float64.
struct LayerCase {
  std::string name;
  MoeOptions options;
  int64_t num_samples = 12, rows_per_sample = 5, width = 6;
  int64_t samples_per_group = 2;
  bool training = true;
  std::vector<int64_t> lengths = {};  ///< tokens of each sample; empty: rows_per_sample of each
  int64_t padding = 0;  ///< rows behind a rank's longest sample; like all padding they are NaN
  PlacementRule placement = PlacementRule::kContiguous;
  UnitLoads unit_load = {};
};

/// Everything that must not depend on the layout: keyed by name, unit parameters one by one.
struct LayerResult {
  std::map<std::string, torch::Tensor> tensors;  ///< outputs and gradients
  torch::Tensor stats;
  UnitPlacement placement = UnitPlacement::contiguous(0, 1);
  double loss = 0.0;
};

/// Runs the case on every rank of the grid. `samples` are this rank's, [first, first + count) of
/// the case's; the loss is the sum over all of them of y times fixed numbers, over their tokens,
/// plus the auxiliary loss. Tensors: `y` and `x.grad` of this rank's tokens among all, [T, D], zero
/// elsewhere, `padding`: the sum of what both have in padding, gradients of parameters with a `*`
/// of this rank's units only.
LayerResult run_layer(const LayerCase& test, int64_t first, int64_t count, RankGrid& grid);

/// run_layer on expert_ranks * replicas thread ranks with uneven shares of whole groups (also
/// none), put together: sums over ranks, as gradient sync would do.
LayerResult run_layer_on(const LayerCase& test, int64_t expert_ranks, int64_t replicas);

/// Largest difference of any tensor, relative to the largest gradient (for gradients) or to the
/// tensor's largest value; names the worst.
struct Difference {
  double value = 0.0;
  std::string where;
};
Difference difference(const LayerResult& result, const LayerResult& expected);

MoeOptions layer_options(const Choice<Router>& router, const Capacity& capacity,
                         const std::vector<std::pair<std::string, ScopeKind>>& losses,
                         int64_t num_units = 4);

/// One case for each capacity order and mode, importance drops, each rule of weights, each scope.
std::vector<LayerCase> layer_cases();

}  // namespace shoal::testing
