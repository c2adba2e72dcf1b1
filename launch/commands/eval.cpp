#include "launch/commands/eval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "launch/job/failure.h"
#include "launch/job/rank_devices.h"
#include "launch/job/recipe.h"
#include "launch/report/console.h"
#include "launch/report/json_text.h"
#include "launch/train/evaluation.h"
#include "launch/train/restore.h"
#include "launch/train/session.h"
#include "parallel/checkpoint/checkpoint_load.h"
#include "runtime/device/tensor_memory.h"

namespace shoal {
namespace {

/// What was evaluated, and how it came out.
struct Result {
  std::string checkpoint;
  int64_t step = 0;
  Evaluation evaluation;
  int64_t num_substituted = 0;  ///< corrupt records that others stand in for
};

std::string as_json(const Result& result) {
  const Evaluation& evaluation = result.evaluation;
  const nlohmann::ordered_json json{{"top1", evaluation.top1},
                                    {"top5", evaluation.top5},
                                    {"loss", evaluation.loss},
                                    {"samples", evaluation.samples},
                                    {"substituted", result.num_substituted},
                                    {"step", result.step},
                                    {"checkpoint", result.checkpoint},
                                    {"seconds", evaluation.seconds}};
  return json_text(json) + "\n";
}

std::string as_table(const Result& result) {
  const Evaluation& evaluation = result.evaluation;
  std::vector<std::vector<std::string>> rows{
      {"result", "value"},
      {"checkpoint", result.checkpoint},
      {"step", std::to_string(result.step)},
      {"loss", fmt::format("{:.4f}", evaluation.loss)},
      {"top-1", fmt::format("{:.2f}%", 100 * evaluation.top1)},
      {"top-5", fmt::format("{:.2f}%", 100 * evaluation.top5)},
      {"samples", std::to_string(evaluation.samples)},
      {"time", human_seconds(evaluation.seconds)}};
  if (result.num_substituted > 0) {
    rows.push_back({"corrupt samples", fmt::format("{}, others stand in", result.num_substituted)});
  }
  return text_table(rows);
}

/// The text for rank 0 to print.
std::string eval_on_ranks(const EvalArguments& arguments, const LaunchInfo& launch,
                          const Environment& environment, Communicator& guard) {
  const std::string path = agree_on_checkpoint(arguments.path, arguments.best, guard);
  const Manifest manifest = read_manifest(path, guard);
  const Recipe recipe =
      config::load_options_text<Recipe>(manifest.recipe, path + "/manifest.json (its recipe)",
                                        {"", arguments.overrides, recipe_environment(environment)})
          .options;
  RankDevices devices = bind_ranks(recipe, launch, guard);
  set_threads(choose_threads(recipe.run.threads, launch));
  if (recipe.run.deterministic) use_deterministic_algorithms();
  recycle_tensor_memory();
  RankGrid grid = make_rank_grid(guard.split(0, guard.rank()), guard.size(), /*ranks_per_node=*/0,
                                 std::move(devices.gpu_world));
  grid.device = devices.own.device;
  const std::unique_ptr<SampleSet> data = make_source(recipe)->open(Split::kValid);
  const BuiltModel model = build_model(recipe, &grid, grid.device);
  load_weights(path, model, *grid.world);
  const Result result{path, manifest.step,
                      evaluate({*model.task, recipe, *data, grid}, manifest.step),
                      data->num_substituted()};
  return arguments.json ? as_json(result) : as_table(result);
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
