#include "launch/train.h"

#include <fmt/format.h>

#include <iostream>
#include <utility>

#include "launch/checks.h"
#include "launch/failure.h"
#include "launch/load_run.h"
#include "launch/recipe.h"
#include "launch/run_lock.h"
#include "launch/run_records.h"
#include "launch/trainer.h"
#include "runtime/device.h"
#include "runtime/tensor_memory.h"

namespace shoal {
namespace {

// Training runs on CPU ranks; a GPU that was asked for is never replaced quietly.
void choose_device(const Recipe& recipe, const LaunchInfo& launch) {
  if (recipe.run.device != DeviceKind::kCuda) return;
  resolve_device("cuda", static_cast<int>(launch.local_rank));
  throw Error(ExitCode::kTopology, "run.device: training on CUDA devices is not implemented yet",
              "use run.device=cpu");
}

ExitCode train_on_ranks(const TrainArguments& arguments, const LaunchInfo& launch,
                        const LoadedRecipe& loaded, std::unique_ptr<Communicator> world) {
  const Recipe& recipe = loaded.options;
  check_topology(loaded, world->size());
  choose_device(recipe, launch);
  RankGrid grid = make_rank_grid(std::move(world), recipe.parallel.expert_ranks);
  const std::shared_ptr<DataSource> source = open_source(recipe);
  const std::unique_ptr<SampleSet> train_data = source->open(Split::kTrain);
  const std::unique_ptr<SampleSet> valid_data = source->open(Split::kValid);
  const StopSignals signals;
  const RunFolder folder =
      open_run_folder(recipe.run.root, recipe.run.name, recipe.run.on_existing, *grid.world);
  Console console = make_console();
  PosixFileSystem files;
  const std::unique_ptr<RunLock> lock =
      lock_run_folder(folder.path, *grid.world, files,
                      [&console](const std::string& line) { console.print("warning: " + line); });
  Log log(fmt::format("{}/rank-{:05}.log", folder.logs(), grid.world->rank()), grid.world->rank(),
          [&console](const std::string& line) { console.print(line); });

  Session session(recipe, *train_data, grid);
  CheckpointWriter::Options checkpoints =
      begin_or_resume(session, recipe, folder, {arguments.override_fixed, log});
  write_run_records(folder, recipe, launch, arguments.command_line, *grid.world);
  log.info(describe_start(session, recipe, folder));
  Trainer trainer({recipe, session, *valid_data, folder, console, log, signals},
                  std::move(checkpoints));
  const TrainingResult result = trainer.run();
  console.finish();
  if (grid.world->rank() == 0) std::cout << write_summary(folder, recipe, result) << std::flush;
  return result.code;
}

}  // namespace

ExitCode train(const TrainArguments& arguments, const Environment& environment) {
  const LaunchInfo launch = read_launch_info(environment);
  const LoadedRecipe loaded = config::load_options<Recipe>(
      {arguments.recipe, arguments.overrides, recipe_environment(environment)});
  set_threads(choose_threads(loaded.options.run.threads, launch));
  recycle_tensor_memory();
  const std::unique_ptr<Communicator> world = make_world(launch);
  // A copy for the work: what it owns is gone by the time a failure is reported.
  return run_on_ranks(*world, [&] {
    return train_on_ranks(arguments, launch, loaded, world->split(0, world->rank()));
  });
}

}  // namespace shoal
