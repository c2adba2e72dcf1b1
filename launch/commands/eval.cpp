#include "launch/commands/commands.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "launch/job/failure.h"
#include "launch/job/rank_devices.h"
#include "launch/job/rank_facts.h"
#include "launch/job/recipe.h"
#include "launch/report/console.h"
#include "launch/train/evaluation.h"
#include "launch/train/restore.h"
#include "launch/train/session.h"
#include "parallel/checkpoint/checkpoint_load.h"

namespace shoal {
namespace {

/// The text for rank 0 to print.
std::string eval_on_ranks(const EvalArguments& arguments, const LaunchInfo& launch,
                          const Environment& environment, Communicator& guard) {
  const std::string path = agree_on_checkpoint(arguments.path, arguments.best, guard);
  const Manifest manifest = read_manifest(path, guard);
  const Recipe recipe =
      config::load_options_text<Recipe>(manifest.recipe, path + "/manifest.json (its recipe)",
                                        {"", arguments.overrides, environment})
          .options;
  require_equal_ranks(guard, recipe);
  set_up_torch(recipe.run.threads, recipe.run.deterministic, launch);
  RankDevices devices = bind_ranks(recipe, launch, guard);
  RankGrid grid = make_rank_grid(guard.split(0, guard.rank()), guard.size(), /*ranks_per_node=*/0,
                                 std::move(devices.gpu_world));
  grid.device = devices.own.device;
  const auto source = make_source(recipe, environment);
  check_stride(recipe, source->shape());
  const OpenSplit data = open_split(source, Split::kValid, choose_workers(launch));
  const BuiltModel model = build_model(recipe, data.source->shape(), &grid, grid.device);
  load_weights(path, model, *grid.world);
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
