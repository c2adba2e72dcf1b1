#include "launch/evaluate/evaluation.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "launch/model/score_rule.h"
#include "launch/runs/expert_records.h"
#include "moe/moe_metrics.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/loader/loader.h"
#include "runtime/data/sample_subset.h"
#include "runtime/records/metrics.h"

// b samples on this rank  B samples on all ranks  N samples of a split
namespace shoal {
namespace {

std::vector<double> load_shares(const MoeReport& layer) {
  const auto total =
      static_cast<double>(std::accumulate(layer.load_U.begin(), layer.load_U.end(), int64_t{0}));
  std::vector<double> shares(layer.load_U.begin(), layer.load_U.end());
  for (double& share : shares) share = total > 0 ? share / total : 0.0;
  return shares;
}

/// Tells which of the task's references each sample of a split is, int64 [samples], -1: none.
/// Undefined for a task without references.
using FindOwn = std::function<torch::Tensor(const OpenSplit& split)>;

/// Gives a task that keeps references new ones from data.train, evenly spaced. Collective. nullopt
/// if interrupted. Throws DataError on every rank if data.train cannot be opened or is empty.
std::optional<FindOwn> add_references(const EvaluationParts& parts,
                                      const Interrupted& interrupted) {
  References* references = parts.task.references();
  if (references == nullptr || references->most_samples() == 0)
    return [](const OpenSplit&) { return torch::Tensor(); };
  std::optional<OpenSplit> opened;
  on_every_rank(*parts.grid.world, [&] {
    if (parts.train_data != nullptr) return;
    opened = open_split(parts.data.source, Split::kTrain, parts.data.workers);
    if (opened->samples->size() > 0) return;
    throw DataError("data.train has no samples, and neighbours are looked for among them",
                    "name files that hold some, or set task.references: 0");
  });
  const OpenSplit& train = opened ? *opened : *parts.train_data;
  references->clear();
  const auto samples = spread_samples(*train.samples, references->most_samples());
  EvalLoader loader(*samples, loader_settings(parts.recipe, train, parts.grid));
  int64_t batches = 0;
  while (const std::optional<Batch> batch = loader.next()) {
    if (interrupted && interrupted()) return std::nullopt;
    references->add(*batch);
    if (parts.progress) parts.progress("references", ++batches, loader.num_batches());
  }
  std::map<int64_t, int64_t> reference_at;  // by place in the files
  for (int64_t i = 0; i < samples->size(); ++i) reference_at.emplace(samples->place(i), i);
  return [reference_at, files = train.fingerprint](const OpenSplit& split) {
    std::vector<int64_t> own(static_cast<size_t>(split.samples->size()), -1);
    const bool is_same = !files.empty() && split.fingerprint == files;
    for (int64_t i = 0; is_same && i < split.samples->size(); ++i) {
      const auto reference = reference_at.find(split.samples->place(i));
      if (reference != reference_at.end()) own[static_cast<size_t>(i)] = reference->second;
    }
    return torch::tensor(own, torch::kInt64);
  };
}

/// Evaluates the task on parts.data alone, with the references that it has. `own_N`: of FindOwn.
std::optional<Evaluation> evaluate_split(const EvaluationParts& parts, torch::Tensor own_N,
                                         int64_t step, RouterAgreement* agreement,
                                         const Interrupted& interrupted) {
  LoaderSettings settings = loader_settings(parts.recipe, parts.data, parts.grid);
  if (parts.each_batch) settings.cut.group = 1;
  EvalLoader loader(*parts.data.samples, settings);
  std::vector<NamedSum> totals;
  std::vector<MoeStats> layers;
  std::vector<PictureColumn> pictures;
  int64_t samples = 0, batches = 0;
  bool is_first = parts.most_pictures > 0;
  if (agreement != nullptr) agreement->begin_evaluation();
  while (std::optional<Batch> batch = loader.next()) {
    if (interrupted && interrupted()) return std::nullopt;
    batch->context.step = step;
    const torch::Tensor place_b = batch->context.sample_b;
    if (own_N.defined()) {
      own_N = own_N.to(place_b.device());
      parts.task.references()->set_own(own_N.index_select(0, place_b));
    }
    if (parts.each_batch) batch->context.sample_b = torch::zeros_like(place_b);
    const EvalOutput output = parts.task.evaluate(*batch);
    add_sums(output.sums, totals);
    add(layers, output.moe);
    samples += batch->context.sample_b.size(0);
    if (agreement != nullptr) agreement->add(output.moe);
    if (parts.each_batch) parts.each_batch(place_b, *batch, output);
    if (std::exchange(is_first, false)) {
      const int64_t most = std::min(parts.most_pictures, batch->context.samples_in_micro);
      pictures = gather_pictures(parts, *batch, 0, most);
    }
    if (parts.progress) parts.progress("evaluation", ++batches, loader.num_batches());
  }
  parts.grid.throw_if_failed();
  // Summed in the same all-reduce, then removed.
  totals.push_back({"samples", static_cast<double>(samples)});
  totals.push_back(agreement != nullptr ? agreement->counts() : NamedSum{"agreement"});
  std::vector<MoeReport> routing = sum_over_ranks(totals, layers, *parts.grid.world);
  const NamedSum same = totals.back();
  totals.pop_back();
  samples = std::llround(totals.back().sum);
  totals.pop_back();
  Evaluation result{parts.task.metrics(totals), samples};
  result.moe = std::move(routing);
  result.pictures = std::move(pictures);
  if (same.weight > 0) result.router_agreement = same.sum / same.weight;
  return result;
}

}  // namespace

void add_sums(const std::vector<NamedSum>& batch, std::vector<NamedSum>& totals) {
  if (totals.empty()) totals.resize(batch.size());
  TORCH_CHECK(totals.size() == batch.size(), "a task's evaluation gave ", totals.size(),
              " sums, then ", batch.size());
  for (size_t i = 0; i < totals.size(); ++i) {
    totals[i].name = batch[i].name;
    totals[i].sum += batch[i].sum;
    totals[i].weight += batch[i].weight;
  }
}

std::vector<MoeReport> sum_over_ranks(std::vector<NamedSum>& totals,
                                      const std::vector<MoeStats>& layers, Communicator& world) {
  std::vector<double> values;
  for (const NamedSum& total : totals) values.insert(values.end(), {total.sum, total.weight});
  const ReducedStats sums = reduce(torch::tensor(values, torch::kFloat64), layers, world);
  const double* value = sums.numbers.const_data_ptr<double>();
  for (NamedSum& total : totals) {
    total.sum = *value++;
    total.weight = *value++;
  }
  return sums.layers;
}

std::unique_ptr<const SampleSet> spread_samples(const SampleSet& all, int64_t most) {
  most = std::min(most, all.size());
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < most; ++i) {
    indices.push_back(static_cast<int64_t>(static_cast<__int128>(i) * all.size() / most));
  }
  return std::make_unique<SampleSubset>(
      std::shared_ptr<const SampleSet>(std::shared_ptr<void>(), &all), std::move(indices));
}

torch::Tensor gather_rows(const torch::Tensor& value_b, const torch::Tensor& place_b, int64_t first,
                          int64_t count, Communicator& world) {
  std::vector<int64_t> sizes = value_b.sizes().vec();
  sizes[0] = count;
  torch::Tensor value_B = at::zeros(sizes, value_b.scalar_type());
  const torch::Tensor host_b = value_b.to(torch::kCPU), host_place_b = place_b.to(torch::kCPU);
  for (int64_t i = 0; i < place_b.size(0); ++i) {
    const int64_t row = host_place_b[i].item<int64_t>() - first;
    if (row >= 0 && row < count) value_B[row].copy_(host_b[i]);
  }
  all_reduce(world, value_B);
  return value_B;
}

std::vector<PictureColumn> gather_pictures(const EvaluationParts& parts, const Batch& batch,
                                           int64_t first, int64_t count) {
  Communicator& world = *parts.grid.world;
  std::vector<PictureColumn> columns = parts.task.pictures(batch);
  const auto gather = [&](torch::Tensor& value_b, torch::Dtype dtype) {
    if (!value_b.defined()) return;
    value_b = gather_rows(value_b.to(dtype), batch.context.sample_b, first, count, world);
  };
  for (PictureColumn& column : columns) {
    gather(column.image_bCHW, torch::kFloat32);
    gather(column.number_b, torch::kFloat64);
  }
  return columns;
}

double Evaluation::value(std::string_view name) const {
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  if (found != metrics.end()) return found->value;
  throw DataError(fmt::format("the evaluated samples do not give the metric '{}'", name),
                  "set evaluate.score to another metric");
}

std::string to_text(const Metric& metric) {
  const double value = without_sign_if_nan(metric.value);
  switch (metric.kind) {
    case Metric::Kind::kShare:
      return fmt::format("{:.2f}%", 100 * value);
    case Metric::Kind::kCount:
      return fmt::format("{:.0f}", value);
    default:
      return fmt::format("{:.4f}", value);
  }
}

void add_metrics(const std::vector<Metric>& metrics, nlohmann::ordered_json& json) {
  for (const Metric& metric : metrics) {
    if (metric.kind == Metric::Kind::kCount) {
      json[metric.name] = std::llround(metric.value);
    } else {
      json[metric.name] = metric.value;
    }
  }
}

nlohmann::ordered_json to_json(const Evaluation& evaluation) {
  nlohmann::ordered_json json;
  add_metrics(evaluation.metrics, json);
  json["samples"] = evaluation.samples;
  if (const auto information = mean_mutual_information(evaluation.moe)) {
    json["moe_mutual_information"] = *information;
  }
  return json;
}

nlohmann::ordered_json routing_json(const std::vector<MoeReport>& layers) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const MoeReport& layer : layers) {
    auto& item = json.emplace_back(nlohmann::ordered_json{{"layer", layer.layer}});
    if (layer.mutual_information) item["mutual_information"] = *layer.mutual_information;
    if (!layer.mean_score_U.empty()) item["mean_score"] = layer.mean_score_U;
    item["load_share"] = load_shares(layer);
    if (layer.num_memory_units > 0) item["memory_units"] = layer.num_memory_units;
    item["dead_units"] = layer.dead_units;
    if (layer.multiply_adds) item["multiply_adds_per_token"] = *layer.multiply_adds;
  }
  return json;
}

std::string routing_text(const std::vector<MoeReport>& layers) {
  const auto number = [](const std::optional<double>& value, const char* format) {
    return value ? fmt::format(fmt::runtime(format), *value) : std::string("-");
  };
  const bool is_counted = std::ranges::any_of(
      layers, [](const MoeReport& layer) { return layer.multiply_adds.has_value(); });
  std::vector<std::vector<std::string>> rows{{"MoE layer", "I(token; unit), nats", "dead"}};
  if (is_counted) rows[0].push_back("multiply-adds per token");
  std::string shares;
  for (const MoeReport& layer : layers) {
    rows.push_back({layer.layer, number(layer.mutual_information, "{:.4f}"),
                    std::to_string(layer.dead_units)});
    if (is_counted) rows.back().push_back(number(layer.multiply_adds, "{:.0f}"));
    shares += load_shares_line(layer.layer, {layer.load_U.begin(), layer.load_U.end()},
                               layer.num_memory_units);
  }
  return fmt::format("{}\nshare of the load, by unit\n{}", text_table(rows), shares);
}

std::optional<Evaluation> evaluate(const EvaluationParts& parts, int64_t step,
                                   RouterAgreement* agreement, const Interrupted& interrupted) {
  const auto start = std::chrono::steady_clock::now();
  const torch::NoGradGuard no_grad;
  const std::optional<FindOwn> find_own = add_references(parts, interrupted);
  if (!find_own) return std::nullopt;
  std::optional<Evaluation> result =
      evaluate_split(parts, (*find_own)(parts.data), step, agreement, interrupted);
  if (!result) return std::nullopt;
  for (const OpenSet& set : parts.sets) {
    EvaluationParts own{parts.task, parts.recipe, set.data, parts.grid};
    own.progress = parts.progress;
    const auto of_set = evaluate_split(own, (*find_own)(set.data), step, nullptr, interrupted);
    if (!of_set) return std::nullopt;
    add_set_metrics(set.name, of_set->metrics, of_set->samples, result->metrics);
  }
  result->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Evaluation evaluate(const EvaluationParts& parts, int64_t step) {
  return *evaluate(parts, step, nullptr, {});
}

}  // namespace shoal
