#include "launch/expert_records.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "launch/console.h"
#include "launch/json_text.h"
#include "runtime/error.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

namespace fs = std::filesystem;

/// A checkpoint lies in RUN/ckpt/step-XXXXXXXX.
std::string records_beside(const std::string& checkpoint_path) {
  const fs::path run = fs::canonical(checkpoint_path).parent_path().parent_path();
  return fs::proximate(run / "experts.jsonl").string();
}

Json parse_line(const std::string& line, const std::string& file, int64_t number) {
  Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer() ||
      !record.contains("layer") || !record["layer"].is_string()) {
    throw DataError(fmt::format("{}:{}: not a record of a layer's experts", file, number));
  }
  return record;
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

std::string shares_text(const Json& record) {
  const std::vector<double> loads = numbers_of(record, "load");
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  std::string text = record["layer"].get<std::string>() + ":";
  for (size_t unit = 0; unit < loads.size(); ++unit) {
    text += fmt::format(" {}={:.1f}%", unit, sum > 0 ? 100 * loads[unit] / sum : 0.0);
  }
  return text + "\n";
}

std::string overload_text(const Json& record) {
  std::string text = record["layer"].get<std::string>() + ":";
  int64_t rank = 0;
  for (const double overload : numbers_of(record, "rank_overload")) {
    text += fmt::format(" {}={:.2f}", rank++, overload);
  }
  return text + "\n";
}

}  // namespace

ExpertRecords read_expert_records(const std::string& checkpoint_path, int64_t step) {
  ExpertRecords records;
  records.file = records_beside(checkpoint_path);
  records.step = -1;
  std::ifstream stream(records.file);
  std::string line;
  for (int64_t number = 1; std::getline(stream, line); ++number) {
    if (stream.eof()) break;  // a line without its end is being written, or was cut off by a crash
    const Json record = parse_line(line, records.file, number);
    const auto found = record["step"].get<int64_t>();
    if (found > step) continue;
    if (found != records.step) records.layers.clear();
    records.step = found;
    records.layers.push_back(line);
  }
  if (records.layers.empty()) {
    throw DataError(fmt::format("'{}' has no record up to step {}", records.file, step),
                    "experts are recorded by runs of models with Mixture-of-Experts layers, at "
                    "each logged step");
  }
  return records;
}

std::string expert_json(const ExpertRecords& records) {
  Json layers = Json::array();
  for (const std::string& layer : records.layers) layers.push_back(Json::parse(layer));
  return json_text(Json{{"file", records.file}, {"step", records.step}, {"layers", layers}});
}

std::string expert_text(const ExpertRecords& records) {
  std::vector<std::vector<std::string>> rows{{"MoE layer", "experts", "load min", "mean", "max",
                                              "load CV", "load entropy", "router entropy", "dead",
                                              "dropped"}};
  std::string shares, overloads;
  for (const std::string& layer : records.layers) {
    const Json record = Json::parse(layer);
    rows.push_back(
        {record["layer"].get<std::string>(), std::to_string(numbers_of(record, "load").size()),
         number_text(record, "load_min", 1), number_text(record, "load_mean", 1),
         number_text(record, "load_max", 1), number_text(record, "load_cv", 3),
         number_text(record, "load_entropy", 3), number_text(record, "router_entropy", 3),
         number_text(record, "dead_experts", 0), number_text(record, "dropped", 4)});
    shares += shares_text(record);
    overloads += overload_text(record);
  }
  return fmt::format(
      "{}, step {}\n{}\nshare of the choices, by expert\n{}"
      "\nload over the ranks' mean, by expert rank\n{}",
      records.file, records.step, text_table(rows), shares, overloads);
}

}  // namespace shoal
