#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
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

/// Result of evaluating a split, in which each sample counts once.
struct Evaluation {
  std::vector<Metric> metrics;
  int64_t samples = 0;
  /// Share of tokens, over all MoE layers, whose first expert is the same as in the evaluation
  /// before; unset if there was none.
  std::optional<double> router_agreement = {};
  double seconds = 0.0;
  std::vector<MoeReport> moe = {};  ///< routing statistics of the split, one per MoE layer
  /// Pictures of the first samples, from gather_pictures.
  std::vector<PictureColumn> pictures = {};

  /// Value of the metric with this name; TORCH_CHECK that it exists.
  double value(std::string_view name) const;
};

/// Arguments of an evaluation: model, recipe, data and ranks. All must outlive the call.
struct EvaluationParts {
  /// Called with the number of batches done; `what` is `evaluation`, or before it `references`.
  using Progress = std::function<void(const char* what, int64_t done, int64_t total)>;

  Task& task;
  const Recipe& recipe;
  const OpenSplit& data;
  RankGrid& grid;
  const OpenSplit* train_data = nullptr;  ///< data.train; null: opened if references need it
  /// Maximum number of samples that the task draws pictures of, all from the first micro-batch.
  /// 0: no pictures.
  int64_t most_pictures = 0;
  Progress progress = {};
};

/// Called before each batch on all ranks; True ends the evaluation without a result.
using Interrupted = std::function<bool()>;

/// Runs the task over all of the data: dropless, without noise or augmentation. A task with
/// references (training samples to compare with, such as the neighbours of kNN) is shown these
/// first. Collective; every rank gets the same result, nullopt if interrupted. `step`: of the
/// training, read by layers that change with it. `agreement` stores the routing for comparison with
/// the next evaluation; pass it on all ranks or on none.
std::optional<Evaluation> evaluate(const EvaluationParts& parts, int64_t step,
                                   RouterAgreement* agreement, const Interrupted& interrupted);
/// Evaluates without interruption or comparison with earlier routing.
Evaluation evaluate(const EvaluationParts& parts, int64_t step);

/// Adds a batch's sums to `totals`, which is empty for the first batch. TORCH_CHECK that the number
/// of sums is the same for all batches.
void add_sums(const std::vector<NamedSum>& batch, std::vector<NamedSum>& totals);

/// All-reduces the sums and the MoE layers' statistics over all ranks, once. Collective.
std::vector<MoeReport> sum_over_ranks(std::vector<NamedSum>& totals,
                                      const std::vector<MoeStats>& layers, Communicator& world);

/// Selects at most `most` evenly spaced samples of a set, in order. `all` must outlive the result.
std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most);

/// Gathers a task's pictures of the split's samples `first` to `first + count - 1` from the ranks
/// whose part of the micro-batch `batch` holds them. Every rank returns all of them, in host
/// memory: images float32 [B, C, H, W], numbers float64 [B]. Empty if the task has no pictures.
/// Collective.
std::vector<PictureColumn> gather_pictures(const EvaluationParts& parts, const Batch& batch,
                                           int64_t first, int64_t count);

/// Formats a value: "96.39%", "0.2234", "1024".
std::string to_text(const Metric& metric);
/// Adds the metrics to `json`, by name.
void add_metrics(const std::vector<Metric>& metrics, nlohmann::ordered_json& json);
/// Metrics by name, `samples`, and for models with MoE layers `moe_mutual_information`.
nlohmann::ordered_json to_json(const Evaluation& evaluation);
/// Routing statistics as a list with an object per MoE layer: `layer`, `load_share`, `dead_units`;
/// if the router makes scores, `mutual_information` (nats) and `mean_score`; `memory_units`, how
/// many of the last units these are, if there are any; `multiply_adds_per_token`, if counted.
nlohmann::ordered_json routing_json(const std::vector<MoeReport>& layers);
/// Table of the MoE layers' routing statistics, and a line with the load shares of each layer.
std::string routing_text(const std::vector<MoeReport>& layers);

}  // namespace shoal
