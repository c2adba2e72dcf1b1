#pragma once

#include <cstdint>
#include <functional>
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

namespace shoal {

/// Results of evaluating a split, each sample counted once.
struct Evaluation {
  std::vector<Metric> metrics;
  int64_t samples = 0;
  /// Share of the tokens, over all MoE layers, whose first unit is the same as in the evaluation
  /// before; unset if there is none.
  std::optional<double> router_agreement = {};
  double seconds = 0.0;
  std::vector<MoeReport> moe = {};  ///< routing statistics of the split, one entry a MoE layer
  /// Pictures of the first samples, from gather_pictures.
  std::vector<PictureColumn> pictures = {};

  /// The value of the metric of this name; TORCH_CHECK that there is one.
  double value(std::string_view name) const;
};

/// Task, recipe, data and ranks of an evaluation; all outlive the call.
struct EvaluationParts {
  /// Called with the number of batches done. `what`: `evaluation`, or `references` before it.
  using Progress = std::function<void(const char* what, int64_t done, int64_t total)>;

  Task& task;
  const Recipe& recipe;
  const OpenSplit& data;
  RankGrid& grid;
  const OpenSplit* train_data = nullptr;  ///< data.train if it is open; else references open it
  /// Samples of the first micro-batch for which the task draws pictures, if it can; 0: none.
  int64_t most_pictures = 0;
  Progress progress = {};
};

/// Called before each batch, on all ranks at once: true to end without a result.
using Interrupted = std::function<bool()>;

/// Runs the task over all of the data: dropless, without noise or augmentation. Before that, a task
/// with Task::references gets those of data.train. Collective; every rank gets the same numbers, or
/// nothing if it was interrupted. `step` is only passed to the layers; `agreement` keeps the
/// routing to compare the next evaluation with, on all ranks or on none.
std::optional<Evaluation> evaluate(const EvaluationParts& parts, int64_t step,
                                   RouterAgreement* agreement, const Interrupted& interrupted);
/// Evaluates without interruption and without comparing routing.
Evaluation evaluate(const EvaluationParts& parts, int64_t step);

/// Adds a batch's sums to `totals`, which is empty for the first batch. TORCH_CHECK that the number
/// of sums is the same for all batches.
void add_sums(const std::vector<NamedSum>& batch, std::vector<NamedSum>& totals);

/// All-reduces the sums and the MoE layers' statistics over all ranks, once. Collective.
std::vector<MoeReport> sum_over_ranks(std::vector<NamedSum>& totals,
                                      const std::vector<MoeStats>& layers, Communicator& world);

/// The value as text: "96.39%", "0.2234", "1024".
std::string to_text(const Metric& metric);
/// Adds the metrics to `json`, by name.
void add_metrics(const std::vector<Metric>& metrics, nlohmann::ordered_json& json);
/// The metrics by name, `samples`, and for models with MoE layers `moe_mutual_information`.
nlohmann::ordered_json to_json(const Evaluation& evaluation);
/// List of the MoE layers' routing statistics: `layer`, `mutual_information` (nats) and
/// `mean_score` if the router has scores, `load_share`, `dead_units`, `memory_units` (the last
/// units) if there are any, and `multiply_adds_per_token` if counted.
nlohmann::ordered_json routing_json(const std::vector<MoeReport>& layers);
/// Table of the MoE layers' routing statistics, and a line with the load shares of each layer.
std::string routing_text(const std::vector<MoeReport>& layers);

}  // namespace shoal
