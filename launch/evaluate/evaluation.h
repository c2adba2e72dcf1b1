#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/data/open_split.h"
#include "launch/evaluate/router_agreement.h"
#include "launch/recipe/recipe.h"
#include "models/task.h"
#include "parallel/comm/rank_grid.h"

// B samples of all ranks  C channels  H height  W width
namespace shoal {

/// Result of evaluating the model on a split, in which each sample counts once.
struct Evaluation {
  std::vector<Metric> metrics;
  int64_t samples = 0;
  /// Share of tokens, over all MoE layers, whose first expert is the same as in the previous
  /// evaluation; unset if there was none.
  std::optional<double> router_agreement = {};
  double seconds = 0.0;
  std::vector<MoeReport> moe = {};  ///< routing statistics of the split, one per MoE layer
  /// Pictures that the task draws of the first samples, a column for each kind.
  std::vector<PictureColumn> pictures = {};

  /// Value of the metric with this name. Throws DataError if the split does not give it.
  double value(std::string_view name) const;
};

/// What an evaluation works on: model, recipe, data and ranks. All must outlive the call.
struct EvaluationParts {
  /// Called after each batch with the numbers of batches. `what`: "references" while training
  /// samples to compare with are read, then "evaluation".
  using Progress = std::function<void(const char* what, int64_t done, int64_t total)>;

  Task& task;
  const Recipe& recipe;
  const OpenSplit& data;
  RankGrid& grid;
  const OpenSplit* train_data = nullptr;  ///< data.train; null: opened if references are needed
  /// Maximum number of samples to draw pictures of, all from the first micro-batch; 0: none.
  int64_t most_pictures = 0;
  Progress progress = {};
  std::span<const OpenSet> sets = {};  ///< evaluated after the data
  /// Called on all ranks after each batch; `place_b`: places of this rank's samples in the split.
  /// If set, each sample is computed apart: in a routing group of its own, and with the random
  /// numbers of a first sample, so that its outputs do not depend on other samples.
  using EachBatch =
      std::function<void(const torch::Tensor& place_b, const Batch&, const EvalOutput&)>;
  EachBatch each_batch = {};
};

/// Called on all ranks before each batch. Must return the same on all; true ends the evaluation.
using Interrupted = std::function<bool()>;

/// Evaluates the task on all of the data, without noise, augmentation or dropped tokens. A task
/// with references (training samples to compare with, such as the neighbours of kNN) is shown these
/// first. `step`: optimizer steps done so far, read by layers that change with it. `agreement`:
/// compares the routing with the previous evaluation's and stores it; null on all ranks or on none.
/// Metrics of the sets follow as NAME.METRIC, with the numbers of samples as NAME.samples.
/// Collective; every rank gets the same result, nullopt if interrupted.
std::optional<Evaluation> evaluate(const EvaluationParts& parts, int64_t step,
                                   RouterAgreement* agreement, const Interrupted& interrupted);
/// Evaluates without interruption or comparison with earlier routing.
Evaluation evaluate(const EvaluationParts& parts, int64_t step);

/// Adds a batch's sums for metrics to `totals`, which is empty for the first batch. TORCH_CHECK
/// that the number of sums is the same for all batches.
void add_sums(const std::vector<NamedSum>& batch, std::vector<NamedSum>& totals);

/// All-reduces `totals` in place, and the MoE layers' statistics, which it returns. Collective.
std::vector<MoeReport> sum_over_ranks(std::vector<NamedSum>& totals,
                                      const std::vector<MoeStats>& layers, Communicator& world);

/// Gathers rows of all ranks by their places, on the host in every rank: rows with place_b from
/// `first` to `first + count - 1`, [count, ...]. Collective.
torch::Tensor gather_rows(const torch::Tensor& value_b, const torch::Tensor& place_b, int64_t first,
                          int64_t count, Communicator& world);

/// Selects at most `most` evenly spaced samples of a set, in order. `all` must outlive the result.
std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most);

/// Draws a task's pictures of the split's samples `first` to `first + count - 1` and gathers them
/// from the ranks. `batch`: this rank's part of the micro-batch with these samples. Returns all
/// pictures on every rank, in host memory: images float32 [B, C, H, W], numbers float64 [B]; empty
/// if the task has no pictures. Collective.
std::vector<PictureColumn> gather_pictures(const EvaluationParts& parts, const Batch& batch,
                                           int64_t first, int64_t count);

/// Formats a value: "96.39%", "0.2234", "1024".
std::string to_text(const Metric& metric);
/// Adds the metrics to `json`, by name.
void add_metrics(const std::vector<Metric>& metrics, nlohmann::ordered_json& json);
/// Metrics by name, `samples`, and for models with MoE layers `moe_mutual_information`.
nlohmann::ordered_json to_json(const Evaluation& evaluation);
/// Routing statistics as a list with an object per MoE layer: `layer`, `load_share` and
/// `dead_units` (units without tokens). A router that computes scores adds `mutual_information` (of
/// token and unit, in nats) and `mean_score`. A layer with memory units (keys with values, not
/// experts) adds their number `memory_units`. `multiply_adds_per_token` is present if counted.
nlohmann::ordered_json routing_json(const std::vector<MoeReport>& layers);
/// Table of the MoE layers' routing statistics, and a line with the load shares of each layer.
std::string routing_text(const std::vector<MoeReport>& layers);

}  // namespace shoal
