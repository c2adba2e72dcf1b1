#include "launch/eval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "launch/console.h"
#include "launch/evaluate.h"
#include "launch/failure.h"
#include "launch/load_run.h"
#include "launch/recipe.h"
#include "launch/session.h"
#include "parallel/checkpoint_folder.h"
#include "parallel/checkpoint_load.h"
#include "runtime/tensor_memory.h"

namespace shoal {
namespace {

std::string as_json(const Evaluation& evaluation, const std::string& path, int64_t step) {
  const nlohmann::ordered_json json{{"top1", evaluation.top1},
                                    {"top5", evaluation.top5},
                                    {"loss", evaluation.loss},
                                    {"samples", evaluation.samples},
                                    {"step", step},
                                    {"checkpoint", path},
                                    {"seconds", evaluation.seconds}};
  return json.dump() + "\n";
}

std::string as_table(const Evaluation& evaluation, const std::string& path, int64_t step) {
  return text_table({{"result", "value"},
                     {"checkpoint", path},
                     {"step", std::to_string(step)},
                     {"loss", fmt::format("{:.4f}", evaluation.loss)},
                     {"top-1", fmt::format("{:.2f}%", 100 * evaluation.top1)},
                     {"top-5", fmt::format("{:.2f}%", 100 * evaluation.top5)},
                     {"samples", std::to_string(evaluation.samples)},
                     {"time", human_seconds(evaluation.seconds)}});
}

/// The text for rank 0 to print.
std::string eval_on_ranks(const EvalArguments& arguments, const LaunchInfo& launch,
                          const Environment& environment, Communicator& guard) {
  const std::string path = resolve_checkpoint(arguments.path, arguments.best);
  const Manifest manifest = read_manifest(path, guard);
  const Recipe recipe =
      config::load_options_text<Recipe>(manifest.recipe, path + "/manifest.json (its recipe)",
                                        {"", arguments.overrides, recipe_environment(environment)})
          .options;
  set_threads(choose_threads(recipe.run.threads, launch));
  recycle_tensor_memory();
  RankGrid grid = make_rank_grid(guard.split(0, guard.rank()), guard.size());
  const std::unique_ptr<SampleSet> data = open_source(recipe)->open(Split::kValid);
  const BuiltModel model = build_model(recipe, &grid, torch::kCPU);
  load_weights(path, model.parameters, *grid.world);
  const Evaluation evaluation = evaluate(*model.task, recipe, *data, grid, manifest.step);
  return arguments.json ? as_json(evaluation, path, manifest.step)
                        : as_table(evaluation, path, manifest.step);
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
