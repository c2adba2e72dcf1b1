#include "launch/evaluate/eval.h"

#include "launch/data/recipe_source.h"
#include "launch/weights/load_weights.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "launch/evaluate/baseline_evaluation.h"
#include "launch/evaluate/evaluation.h"
#include "launch/evaluate/predictions.h"
#include "launch/job/console.h"
#include "launch/job/failure.h"
#include "launch/report/sections.h"
#include "launch/step/session.h"
#include "moe/moe_layer.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

constexpr int64_t kMostConfusionClasses = 1000;

/// Results of one call.
struct EvalResult {
  std::string checkpoint;
  int64_t step = 0;
  bool is_averaged = false;    ///< whether the weights are averages
  int64_t num_by_kernels = 0;  ///< layers that sparse kernels run
  Evaluation evaluation;
  std::string draw;  ///< describe_draw of data.valid
  int64_t num_substituted = 0;
  std::optional<std::vector<BaselineScore>> baselines;
  std::optional<DrawnImages> images;
  Predictions predictions;           ///< on rank 0, if they are wanted
  nlohmann::ordered_json confusion;  ///< likewise
};

/// Evaluates the task's baselines; nullopt if it has none. Collective.
std::optional<std::vector<BaselineScore>> find_baselines(const EvaluationParts& parts) {
  const std::shared_ptr<Baselines> baselines = parts.task.baselines();
  if (!baselines) return std::nullopt;
  if (parts.grid.world->rank() == 0) {
    for (const std::string& note : baselines->notes()) std::cerr << "note: " << note << "\n";
  }
  try {
    fit_baselines(*baselines, parts);
  } catch (const DataError& error) {
    if (parts.grid.world->rank() == 0) {
      std::cerr << fmt::format(
          "warning: baselines that are fitted on training samples are left out, since data.train "
          "cannot be read: {}\n  next: name its files by data.train.…=…, or give "
          "--no-baselines\n",
          error.what());
    }
  }
  return evaluate_baselines(*baselines, parts);
}

/// Tells, where a router looks at other samples, that --predictions and --confusion let it not.
void note_apart(const BuiltModel& model) {
  for (const auto& stage : model.stages) {
    const auto layer = std::dynamic_pointer_cast<MoeLayer>(stage);
    if (layer == nullptr || !layer->router().depends_on_other_samples()) continue;
    std::cerr << fmt::format(
        "note: router {} of {} compares samples; with --predictions or --confusion each sample is "
        "routed alone, so that metrics differ from those of an evaluation without\n",
        layer->options().router.name(), layer->path());
    return;
  }
}

/// Writes the predictions, and the confusions for `shoal report` if the checkpoint is in a run and
/// was evaluated by its own recipe: those of other data are not the run's.
void write_predictions(const EvalResult& result, const EvalArguments& arguments) {
  namespace fs = std::filesystem;
  PosixFileSystem files;
  std::error_code failed;
  if (const std::string& path = arguments.predictions; !path.empty()) {
    fs::create_directories(parent_path(path), failed);  // where it fails, so does the file
    replace_file(files, path, result.predictions.lines);
  }
  if (!arguments.confusion || !arguments.checkpoint.overrides.empty()) return;
  const fs::path run = fs::canonical(result.checkpoint, failed).parent_path().parent_path();
  if (failed || !fs::exists(run / "resolved.yaml", failed)) return;
  try {
    replace_file(files, (run / "confusion.json").string(), json_text(result.confusion) + "\n");
  } catch (const StorageError& error) {
    std::cerr << "warning: the run's report will not show confusions: " << error.what() << "\n";
  }
}

/// Opens the validation split and the sets, and tells what there is to note of them. Throws as
/// open_valid, open_sets and require_own_tokenizer.
std::pair<OpenSplit, std::vector<OpenSet>> open_eval_data(const OpenedCheckpoint& opened,
                                                          const LaunchInfo& launch,
                                                          const Environment& environment) {
  const Recipe& recipe = opened.recipe;
  const auto source = make_source(recipe, environment);
  const bool is_imported = opened.manifest.written_by.contains(kImportedAs);
  if (is_imported && join_words(source->files(Split::kValid)).starts_with("FOLDER/")) {
    throw ConfigError("data.path: imported weights have no data; give data.source and data.path");
  }
  check_stride(recipe, *source);
  OpenSplit data = open_valid(recipe, source, choose_workers(launch));
  const auto tell = [&opened](OpenSplit& split, const std::string& place) {
    split.warn = [place](const std::string& line) {
      std::cerr << "warning: " << place << line << "\n";
    };
    if (opened.grid.world->rank() == 0) {
      for (const std::string& line : split.samples->notes()) {
        std::cerr << "note: " << place << line << "\n";
      }
      for (const std::string& line : split.samples->warnings()) split.warn(line);
    }
    require_own_tokenizer(opened.manifest, split.tokenizer);
  };
  tell(data, "");
  auto sets = open_sets(recipe, make_set_sources(recipe, *source, environment), data.workers);
  for (OpenSet& set : sets) tell(set.data, "evaluate.sets." + set.name + ": ");
  return {std::move(data), std::move(sets)};
}

EvalResult eval_on_ranks(const EvalArguments& arguments, const LaunchInfo& launch,
                         const Environment& environment, Communicator& guard) {
  OpenedCheckpoint opened = open_checkpoint(arguments.checkpoint, launch, environment, guard);
  const Recipe& recipe = opened.recipe;
  RankGrid& grid = opened.grid;
  const auto [data, sets] = open_eval_data(opened, launch, environment);
  const BuiltModel model = build_model(recipe, data.source->shape(), {&grid, grid.device});
  EvalResult result;
  result.num_by_kernels = load_model(opened, model);
  Console console = make_console(launch.columns);
  EvaluationParts parts{*model.task, recipe, data, grid};
  if (grid.world->rank() == 0) {
    parts.progress = [&console](const char* what, int64_t done, int64_t total) {
      console.pulse([&](int64_t) { return share_done(what, done, total); });
    };
  }
  result.checkpoint = opened.path;
  result.step = opened.manifest.step;
  result.is_averaged = has_averages(opened.manifest) && !arguments.checkpoint.raw_weights;
  if (!arguments.images.folder.empty()) {
    PosixFileSystem files;
    result.images = draw_evaluation_images(arguments.images, parts, result.step, files);
  }
  result.draw = describe_draw(data);
  parts.sets = sets;
  if (!arguments.predictions.empty() || arguments.confusion) {
    require_classifier(*model.task, recipe, "--predictions or --confusion");
    if (arguments.confusion && data.source->shape().classes > kMostConfusionClasses) {
      throw Error(ExitCode::kUsage, "--confusion: more than 1000 classes", "use --predictions");
    }
    if (grid.world->rank() == 0) note_apart(model);
    parts.each_batch = collect_predictions(parts, result.predictions);
  }
  result.evaluation = evaluate(parts, result.step);
  if (arguments.confusion) {
    result.confusion = count_confusions(result.predictions.guesses, data);
    result.confusion["step"] = result.step;
  }
  console.clear();
  result.num_substituted = count_substituted(*data.samples, *grid.world);
  for (const OpenSet& set : sets) {
    result.num_substituted += count_substituted(*set.data.samples, *grid.world);
  }
  if (arguments.baselines) result.baselines = find_baselines(parts);
  return result;
}

std::string eval_json(const EvalResult& result, const EvalArguments& arguments) {
  Evaluation of_data = result.evaluation;
  nlohmann::ordered_json sets;
  std::erase_if(of_data.metrics, [&sets](const Metric& metric) {
    const size_t dot = metric.name.find('.');
    if (dot == metric.name.npos) return false;
    add_metrics({{metric.name.substr(dot + 1), metric.value, metric.kind}},
                sets[metric.name.substr(0, dot)]);
    return true;
  });
  nlohmann::ordered_json json = to_json(of_data);
  if (!sets.empty()) json["sets"] = sets;
  if (!result.evaluation.moe.empty()) json["moe"] = routing_json(result.evaluation.moe);
  if (result.baselines) json["baselines"] = to_json(*result.baselines);
  if (result.images) {
    json["images"] = {{"folder", arguments.images.folder},
                      {"count", result.images->count},
                      {"columns", result.images->columns}};
  }
  if (!arguments.predictions.empty()) json["predictions"] = arguments.predictions;
  if (arguments.confusion) json["confusion"] = result.confusion;
  json["substituted"] = result.num_substituted;
  json["step"] = result.step;
  json["checkpoint"] = result.checkpoint;
  json["averaged"] = result.is_averaged;
  json["num_sparse_kernel_layers"] = result.num_by_kernels;
  json["seconds"] = result.evaluation.seconds;
  return json_text(json) + "\n";
}

std::string eval_text(const EvalResult& result, const EvalArguments& arguments) {
  const Evaluation& evaluation = result.evaluation;
  std::vector<std::vector<std::string>> rows{{"result", "value"},
                                             {"checkpoint", result.checkpoint},
                                             {"step", std::to_string(result.step)}};
  if (result.is_averaged) rows.push_back({"weights", "averaged"});
  if (result.num_by_kernels > 0) {
    rows.push_back({"by sparse kernels", counted(result.num_by_kernels, "layer")});
  }
  for (const Metric& metric : evaluation.metrics) rows.push_back({metric.label, to_text(metric)});
  rows.push_back(
      {"samples", result.draw.empty() ? std::to_string(evaluation.samples) : result.draw});
  rows.push_back({"time", human_seconds(evaluation.seconds)});
  if (result.num_substituted > 0) {
    rows.push_back(
        {"corrupt samples", fmt::format("{}, replaced by others", result.num_substituted)});
  }
  std::string text = text_table(rows);
  if (!evaluation.moe.empty()) text += fmt::format("\n{}", routing_text(evaluation.moe));
  if (result.baselines) text += fmt::format("\n{}", to_text(*result.baselines));
  if (result.images) {
    text += fmt::format("\npictures of {}: {}/contact_sheet.png, from the left: {}\n",
                        counted(result.images->count, "sample"), arguments.images.folder,
                        join_words(result.images->columns, ", "));
  }
  if (!arguments.predictions.empty()) {
    text += fmt::format("\nthe prediction of each sample: {}\n", arguments.predictions);
  }
  if (!arguments.confusion) return text;
  for (const CaptionedTable& table : confusion_tables(result.confusion)) {
    text += fmt::format("\n{}\n{}", table.caption, text_table(table.rows));
  }
  return text;
}

}  // namespace

ExitCode eval(const EvalArguments& arguments, const Environment& environment, std::ostream& out) {
  const LaunchInfo launch = read_launch_info(environment);
  const std::unique_ptr<Communicator> world = make_world(launch);
  return run_on_ranks(*world, [&] {
    const EvalResult result = eval_on_ranks(arguments, launch, environment, *world);
    if (world->rank() == 0) {
      out << (arguments.json ? eval_json(result, arguments) : eval_text(result, arguments))
          << std::flush;
      write_predictions(result, arguments);
    }
    return ExitCode::kOk;
  });
}

}  // namespace shoal
