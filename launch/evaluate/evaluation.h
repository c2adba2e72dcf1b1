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

/// What a task reports of a split, each sample counted once.
struct Evaluation {
  std::vector<Metric> metrics;
  int64_t samples = 0;
  /// Share of the tokens, over all MoE layers, that keep their first unit since the evaluation
  /// before; unset where there is nothing to compare.
  std::optional<double> router_agreement = {};
  double seconds = 0.0;
  std::vector<MoeReport> moe = {};  ///< how the split was routed, one entry a MoE layer
  /// Of the first samples; as gather_pictures makes them.
  std::vector<PictureColumn> pictures = {};

  /// Of the metric of this name; TORCH_CHECK that there is one.
  double value(std::string_view name) const;
};

/// What is evaluated, by which recipe, on what data and ranks; all outlive the call.
struct EvaluationParts {
  /// Told how many batches are done, and of what: `evaluation`, or `references` before it.
  using Progress = std::function<void(const char* what, int64_t done, int64_t total)>;

  Task& task;
  const Recipe& recipe;
  const OpenSplit& data;
  RankGrid& grid;
  const OpenSplit* train_data = nullptr;  ///< data.train where it is open; else references open it
  /// Of so many samples at most, those of the first micro-batch, the task draws pictures if it
  /// draws any.
  int64_t most_pictures = 0;
  Progress progress = {};
};

/// Asked before each batch, on all ranks at once: whether to end without a result.
using Interrupted = std::function<bool()>;

/// Runs the task over all of the data: dropless, without noise or augmentation. A task with
/// Task::references is shown those of data.train first. Collective; every rank gets the same
/// numbers; nothing if it was interrupted. `step` is only passed to the layers;
/// `agreement` keeps what the next evaluation is compared with, on all ranks or on none.
std::optional<Evaluation> evaluate(const EvaluationParts& parts, int64_t step,
                                   RouterAgreement* agreement, const Interrupted& interrupted);
/// To the end, compared with no other.
Evaluation evaluate(const EvaluationParts& parts, int64_t step);

/// Adds a batch's sums to those of the batches before it; the first `totals` is empty. TORCH_CHECK
/// that each batch has the same number of sums.
void add_sums(const std::vector<NamedSum>& batch, std::vector<NamedSum>& totals);

/// Adds up all ranks' sums, and makes reports of their MoE layers: one all-reduce. Collective.
std::vector<MoeReport> sum_over_ranks(std::vector<NamedSum>& totals,
                                      const std::vector<MoeStats>& layers, Communicator& world);

/// "96.39%", "0.2234", "1024".
std::string to_text(const Metric& metric);
/// Adds the metrics by name.
void add_metrics(const std::vector<Metric>& metrics, nlohmann::ordered_json& json);
/// The metrics by name, `samples`, and of models with MoE layers `moe_mutual_information`.
nlohmann::ordered_json to_json(const Evaluation& evaluation);
/// How each MoE layer routed the split, a list: `layer`, `mutual_information` (nats) and
/// `mean_score` where the router makes scores, `load_share`, `dead_units`, `memory_units` (the last
/// ones) where there are any, and where it is counted `multiply_adds_per_token`.
nlohmann::ordered_json routing_json(const std::vector<MoeReport>& layers);
/// The same as a table, and a line with the shares of each layer.
std::string routing_text(const std::vector<MoeReport>& layers);

}  // namespace shoal
