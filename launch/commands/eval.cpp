#include "launch/commands/commands.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "launch/commands/open_checkpoint.h"
#include "launch/job/failure.h"
#include "launch/report/console.h"
#include "launch/train/evaluation.h"
#include "launch/train/restore.h"
#include "launch/train/session.h"

namespace shoal {
namespace {

/// The text for rank 0 to print.
std::string eval_on_ranks(const EvalArguments& arguments, const LaunchInfo& launch,
                          const Environment& environment, Communicator& guard) {
  OpenedCheckpoint opened = open_checkpoint({arguments.path, arguments.best, arguments.overrides},
                                            launch, environment, guard);
  const std::string& path = opened.path;
  const Manifest& manifest = opened.manifest;
  const Recipe& recipe = opened.recipe;
  RankGrid& grid = opened.grid;
  const auto source = make_source(recipe, environment);
  check_stride(recipe, *source);
  const OpenSplit data = open_split(source, Split::kValid, choose_workers(launch));
  require_own_tokenizer(manifest, data.tokenizer);
  const BuiltModel model = build_model(recipe, data.source->shape(), &grid, grid.device);
  load_model(opened, model);
  const Evaluation evaluation = evaluate({*model.task, recipe, data, grid}, manifest.step);
  const int64_t num_substituted = data.samples->num_substituted();
  if (arguments.json) {
    nlohmann::ordered_json json = to_json(evaluation);
    json["substituted"] = num_substituted;
    json["step"] = manifest.step;
    json["checkpoint"] = path;
    json["seconds"] = evaluation.seconds;
    return json_text(json) + "\n";
  }
  std::vector<std::vector<std::string>> rows{
      {"result", "value"}, {"checkpoint", path}, {"step", std::to_string(manifest.step)}};
  for (const Metric& metric : evaluation.metrics) rows.push_back({metric.label, to_text(metric)});
  rows.push_back({"samples", std::to_string(evaluation.samples)});
  rows.push_back({"time", human_seconds(evaluation.seconds)});
  if (num_substituted > 0) {
    rows.push_back({"corrupt samples", fmt::format("{}, replaced by others", num_substituted)});
  }
  return text_table(rows);
}

}  // namespace

ExitCode eval(const EvalArguments& arguments, const Environment& environment, std::ostream& out) {
  const LaunchInfo launch = read_launch_info(environment);
  const std::unique_ptr<Communicator> world = make_world(launch);
  return run_on_ranks(*world, [&] {
    const std::string text = eval_on_ranks(arguments, launch, environment, *world);
    if (world->rank() == 0) out << text << std::flush;
    return ExitCode::kOk;
  });
}

}  // namespace shoal
