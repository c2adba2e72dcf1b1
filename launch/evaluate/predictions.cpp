#include "launch/evaluate/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json_text.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;
using ClassNames = std::vector<std::string>;

constexpr int64_t kTopClasses = 5, kMostListed = 10;

/// a / b, 0 for 0 / 0.
double share(int64_t a, int64_t b) {
  return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
}

void put_class(Json& row, const std::string& key, size_t index, const ClassNames& names) {
  row[key] = index;
  if (index < names.size()) row[key + "_name"] = names[index];
}

Json sample_row(size_t guess, size_t label, const OpenSplit& data, const ClassNames& names) {
  const auto index = static_cast<int64_t>(guess);
  Json row{{"sample", data.samples->place(index)}};
  if (const std::string file = data.samples->name(index); !file.empty()) row["file"] = file;
  put_class(row, "label", label, names);
  return row;
}

}  // namespace

void require_classifier(const Task& task, const Recipe& recipe, const std::string& what) {
  if (task.classifies()) return;
  throw ConfigError(fmt::format(
      "task.name: {} needs a task that predicts classes, and {} does not; `shoal generate` "
      "continues texts, `shoal predict --save-images FOLDER` restores images",
      what, recipe.task.name()));
}

nlohmann::ordered_json top_classes(const torch::Tensor& probability_N, int64_t k,
                                   const ClassNames& names) {
  const auto [sorted_N, class_N] =
      probability_N.to(torch::kFloat64).sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  Json top = Json::array();
  for (int64_t i = 0; i < std::min(k, sorted_N.size(0)); ++i) {
    const auto best = class_N[i].item<int64_t>();
    Json& entry = top.emplace_back(Json{{"class", best}});
    if (best < std::ssize(names)) entry["name"] = names[static_cast<size_t>(best)];
    entry["probability"] = sorted_N[i].item<double>();
  }
  return top;
}

EvaluationParts::EachBatch collect_predictions(const EvaluationParts& parts, Predictions& result) {
  return [&parts, &result, names = parts.data.source->class_names(), first = int64_t{0}](
             const auto& place_b, const Batch& batch, const EvalOutput& output) mutable {
    Communicator& world = *parts.grid.world;
    const int64_t count = batch.context.samples_in_micro;
    const torch::Tensor label_B = gather_rows(batch.label_b, place_b, first, count, world);
    const torch::Tensor probability_BN =
        gather_rows(output.probability_bN, place_b, first, count, world);
    for (int64_t i = 0; i < count && world.rank() == 0; ++i) {
      const auto label = static_cast<size_t>(label_B[i].template item<int64_t>());
      Json line = sample_row(result.guesses.size(), label, parts.data, names);
      const Json& top = line["top"] = top_classes(probability_BN[i], kTopClasses, names);
      result.guesses.push_back({label, top[0]["class"], top[0]["probability"]});
      line["probability"] = probability_BN[i][label_B[i]].template item<double>();
      result.lines += json_text(line) + "\n";
    }
    first += count;
  };
}

nlohmann::ordered_json count_confusions(const std::vector<Predictions::Guess>& guesses,
                                        const OpenSplit& data) {
  const ClassNames names = data.source->class_names();
  const auto size = static_cast<size_t>(data.source->shape().classes);
  std::vector<std::vector<int64_t>> count(size, std::vector<int64_t>(size));
  std::vector<std::pair<double, size_t>> mistakes;  // the surest first when sorted
  for (size_t i = 0; i < guesses.size(); ++i) {
    const auto& [label, predicted, probability] = guesses[i];
    ++count[static_cast<size_t>(label)][static_cast<size_t>(predicted)];
    if (label != predicted)
      mistakes.emplace_back(probability > 0 ? -probability : 0.0, i);  // NaN: 0
  }
  Json json{{"classes", Json::array()}, {"worst", Json::array()}, {"mistakes", Json::array()}};
  std::vector<std::tuple<int64_t, size_t, size_t>> pairs;  // the most frequent first when sorted
  for (size_t a = 0; a < size; ++a) {
    int64_t of_label = 0, of_predicted = 0;
    for (size_t b = 0; b < size; ++b) {
      of_label += count[a][b];
      of_predicted += count[b][a];
      if (a != b && count[a][b] > 0) pairs.emplace_back(-count[a][b], a, b);
    }
    Json& row = json["classes"].emplace_back();
    put_class(row, "class", a, names);
    row["samples"] = of_label;
    row["recall"] = share(count[a][a], of_label);
    row["precision"] = share(count[a][a], of_predicted);
    row["f1"] = share(2 * count[a][a], of_label + of_predicted);
  }
  std::ranges::sort(pairs);
  for (const auto& [negative, label, predicted] : std::views::take(pairs, kMostListed)) {
    Json& row = json["worst"].emplace_back();
    put_class(row, "label", label, names);
    put_class(row, "predicted", predicted, names);
    row["samples"] = -negative;
  }
  std::ranges::sort(mistakes);
  for (const auto& [negative, sample] : std::views::take(mistakes, kMostListed)) {
    Json& row =
        json["mistakes"].emplace_back(sample_row(sample, guesses[sample].label, data, names));
    put_class(row, "predicted", guesses[sample].predicted, names);
    row["probability"] = -negative;
  }
  json["matrix"] = count;
  return json;
}

}  // namespace shoal
