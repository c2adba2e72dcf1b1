#include "launch/runs/expert_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>

#include "moe/routing/recorded_loads.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/files/data_file.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

namespace fs = std::filesystem;

constexpr const char* kAgreement = "router_agreement";

/// Path of a file in the checkpoint's run, which is RUN in RUN/ckpt/step-XXXXXXXX. Uses the path as
/// given, unless it leads elsewhere, for example through a link.
std::string file_of_run(const std::string& checkpoint_path, const char* name) {
  const fs::path run = fs::canonical(checkpoint_path).parent_path().parent_path();
  const fs::path given = fs::path(checkpoint_path).parent_path().parent_path();
  std::error_code failed;
  const bool is_it = fs::equivalent(given.empty() ? fs::path(".") : given, run, failed);
  return ((is_it ? given : run) / name).string();
}

/// Calls `use` with each record up to `step`. Throws DataError if there is none.
template <class Use>
void for_each_record_up_to(int64_t step, const std::string& file, const Use& use) {
  const char* hint =
      "experts are recorded by runs of models with Mixture-of-Experts layers, at each logged step";
  bool has_record = false;
  for_each_load_record(file, hint, [&](const LoadRecord& record) {
    if (record.step > step) return;
    has_record = true;
    use(record);
  });
  if (!has_record) {
    throw DataError(fmt::format("'{}' has no record up to step {}", file, step), hint);
  }
}

/// Loads at the last logged step; empty without the file.
UnitLoads last_loads(const std::string& file) {
  UnitLoads loads;
  std::error_code ignored;
  if (fs::status(file, ignored).type() == fs::file_type::not_found) return loads;
  int64_t last_step = 0;
  for_each_load_record(file, "parallel.placement=by_load reads it; resume with another placement",
                       [&](const LoadRecord& record) {
                         if (record.step != last_step) loads.clear();
                         last_step = record.step;
                         loads[record.layer] = record.load_U;
                       });
  return loads;
}

std::string number_text(const Json& record, const char* key, int digits) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_number()) return "-";
  return found->is_number_integer() ? found->dump()
                                    : fmt::format("{:.{}f}", found->get<double>(), digits);
}

std::vector<double> numbers_of(const Json& record, const char* key) {
  const auto found = record.find(key);
  std::vector<double> numbers;
  if (found == record.end() || !found->is_array()) return numbers;
  for (const Json& item : *found) numbers.push_back(item.is_number() ? item.get<double>() : 0.0);
  return numbers;
}

/// Relative loads of expert ranks, "blocks.2.moe: 0=1.02 1=0.98"; "" if the record has none, as for
/// layers whose load is not their work.
std::string overload_line(const Json& record) {
  const std::vector<double> overload = numbers_of(record, "rank_overload");
  if (overload.empty()) return "";
  std::string text = record["layer"].get<std::string>() + ":";
  for (size_t i = 0; i < overload.size(); ++i) text += fmt::format(" {}={:.2f}", i, overload[i]);
  return text + "\n";
}

/// Reads the keys `moe_...` of `logged_step`, and the last `router_agreement` up to `last_step`.
Json read_metrics(const std::string& file, int64_t logged_step, int64_t last_step) {
  Json metrics = Json::object(), agreement;
  std::ifstream stream = open_unless_pipe(file);
  // An incomplete last line is still being written, or was cut off by a crash.
  for (std::string line; std::getline(stream, line) && !stream.eof();) {
    const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("step") || record["step"] > last_step) continue;
    if (record.contains(kAgreement)) agreement = record[kAgreement];
    if (record["step"] != logged_step) continue;
    for (const auto& [key, value] : record.items()) {
      if (key.starts_with("moe_")) metrics[key] = value;
    }
  }
  if (!agreement.is_null()) metrics[kAgreement] = agreement;
  return metrics;
}

std::string metrics_text(const Json& metrics) {
  if (metrics.empty()) return "";
  std::vector<std::vector<std::string>> rows{{"all layers", "value"}};
  for (const auto& [key, value] : metrics.items()) {
    rows.push_back({key, number_text(metrics, key.c_str(), 4)});
  }
  return text_table(rows) + "\n";
}

}  // namespace

Json read_expert_records(const std::string& checkpoint_path, int64_t step) {
  const std::string file = file_of_run(checkpoint_path, "experts.jsonl");
  int64_t logged_step = -1;
  Json layers;
  for_each_record_up_to(step, file, [&](const LoadRecord& record) {
    if (record.step != logged_step) layers = Json::array();
    logged_step = record.step;
    layers.push_back(Json::parse(record.text));
  });
  return {
      {"file", file},
      {"step", logged_step},
      {"metrics", read_metrics(file_of_run(checkpoint_path, "metrics.jsonl"), logged_step, step)},
      {"layers", layers}};
}

std::vector<LayerLoads> read_load_history(const std::string& checkpoint_path, int64_t step) {
  const std::string file = file_of_run(checkpoint_path, "experts.jsonl");
  std::vector<LayerLoads> layers;
  for_each_record_up_to(step, file, [&](const LoadRecord& record) {
    auto layer = std::ranges::find(layers, record.layer, &LayerLoads::layer);
    if (layer == layers.end()) {
      layer = layers.insert(layers.end(), LayerLoads{record.layer, record.memory_units});
    }
    layer->load.add(record.step, record.load_U);
  });
  return layers;
}

UnitLoads logged_loads(const Recipe& recipe, Communicator& world) {
  if (recipe.parallel.placement != PlacementRule::kByLoad ||
      recipe.run.on_existing != OnExisting::kResume) {
    return {};
  }
  const std::string text = on_rank_zero(world, [&] {
    const UnitLoads loads =
        last_loads(fmt::format("{}/{}/experts.jsonl", recipe.run.root, recipe.run.name));
    return Json(loads).dump();
  });
  return Json::parse(text).get<UnitLoads>();
}

std::string load_shares_line(const std::string& layer, const std::vector<double>& load_U,
                             int64_t num_memory_units) {
  const double sum = std::accumulate(load_U.begin(), load_U.end(), 0.0);
  const auto num_experts = load_U.size() - static_cast<size_t>(num_memory_units);
  std::string text = layer + ":";
  for (size_t u = 0; u < load_U.size(); ++u) {
    if (u == num_experts) text += u == 0 ? " memory units" : "; memory units";
    text += fmt::format(" {}={:.1f}%", u, sum > 0 ? 100 * load_U[u] / sum : 0.0);
  }
  return text + "\n";
}

std::string expert_text(const Json& records) {
  const bool has_memory = std::ranges::any_of(
      records["layers"], [](const Json& record) { return record.contains("memory_units"); });
  std::vector<std::vector<std::string>> rows{{"MoE layer", "experts", "load min", "mean", "max",
                                              "load CV", "load entropy", "router entropy",
                                              "I(token; unit)", "dead", "dropped"}};
  if (has_memory) rows[0].insert(rows[0].begin() + 2, "memory units");
  std::string shares, overloads;
  for (const Json& record : records["layers"]) {
    const std::vector<double> loads = numbers_of(record, "load");
    const auto num_memory =
        std::clamp<int64_t>(record.value("memory_units", int64_t{0}), 0, std::ssize(loads));
    const std::string layer = record["layer"].get<std::string>();
    rows.push_back(
        {layer, std::to_string(std::ssize(loads) - num_memory), number_text(record, "load_min", 1),
         number_text(record, "load_mean", 1), number_text(record, "load_max", 1),
         number_text(record, "load_cv", 3), number_text(record, "load_entropy", 3),
         number_text(record, "router_entropy", 3), number_text(record, "mutual_information", 4),
         number_text(record, "dead_experts", 0), number_text(record, "dropped", 4)});
    if (has_memory) rows.back().insert(rows.back().begin() + 2, std::to_string(num_memory));
    shares += load_shares_line(layer, loads, num_memory);
    overloads += overload_line(record);
  }
  if (!overloads.empty()) overloads = "\nload over the ranks' mean, by expert rank\n" + overloads;
  return fmt::format("{}, step {}\n{}{}\nshare of the load, by unit\n{}{}",
                     records["file"].get<std::string>(), records["step"].get<int64_t>(),
                     metrics_text(records["metrics"]), text_table(rows), shares, overloads);
}

}  // namespace shoal
