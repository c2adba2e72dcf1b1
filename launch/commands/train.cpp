#include "launch/commands/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <utility>

#include "launch/job/failure.h"
#include "launch/job/rank_devices.h"
#include "launch/job/recipe.h"
#include "launch/job/run_lock.h"
#include "launch/train/check_recipe.h"
#include "launch/train/evaluation.h"
#include "launch/train/restore.h"
#include "launch/train/run_records.h"
#include "launch/train/trainer.h"
#include "launch/train/unit_loads.h"
#include "parallel/comm/equal_on_ranks.h"
#include "parallel/comm/local_rank.h"
#include "runtime/base/build_info.h"
#include "runtime/base/sha256.h"
#include "runtime/base/signals.h"
#include "runtime/base/text.h"
#include "runtime/device/tensor_memory.h"
#include "runtime/recipe/config_writer.h"

namespace shoal {
namespace {

void warn_of_substitutes(const char* split, const SampleSet& data, Log& log) {
  if (data.num_substituted() == 0) return;
  log.warn(fmt::format("{}: {} of {} samples are corrupt; the next good ones stand in", split,
                       data.num_substituted(), data.size()));
}

/// What must be the same on all ranks.
Facts facts_of(const Recipe& recipe) {
  const BuildInfo& build = build_info();
  return {{"shoal", build.version + " " + build.git_revision},
          {"LibTorch", build.torch_version},
          {"recipe", "sha256:" + sha256_hex(config::canonical_text(recipe)).substr(0, 12)}};
}

/// What make_rank_grid takes for a node: 0 unless some stage asks. Collective.
int64_t ranks_per_node(const CheckedRecipe& checked, Communicator& world) {
  const std::vector<MoeStageInfo>& stages = checked.counts.stages;
  const bool is_asked = std::any_of(stages.begin(), stages.end(), [](const MoeStageInfo& stage) {
    return stage.is_hierarchical;
  });
  if (!is_asked) return 0;
  const std::optional<int64_t> wanted = checked.loaded.options.parallel.ranks_per_node;
  if (wanted) return *wanted;
  const LocalRank own = local_rank_of(world);
  const int64_t is_apart = own.rank == world.rank() % own.size ? 0 : 1;
  const torch::Tensor facts = torch::tensor({own.size, -own.size, is_apart}, torch::kInt64);
  all_reduce(world, facts, ReduceOp::kMax);
  const int64_t most = facts[0].item<int64_t>(), least = -facts[1].item<int64_t>();
  const bool are_apart = facts[2].item<int64_t>() != 0;
  if (most == least && !are_apart) return own.size;
  if (most == least) {
    throw ConfigError(
        "parallel.ranks_per_node: neighbouring ranks are on different machines, a hierarchical "
        "exchange needs them together; start with mpirun --map-by slot, srun --distribution=block",
        ExitCode::kTopology);
  }
  throw ConfigError(
      fmt::format("parallel.ranks_per_node: machines run {} to {} ranks each, a hierarchical "
                  "exchange needs equally many; start equally many, or set ranks_per_node",
                  least, most),
      ExitCode::kTopology);
}

std::string describe_nodes(const RankGrid& grid) {
  return fmt::format("hierarchical exchange: the ranks of an expert group are on {} of {}",
                     counted(grid.num_nodes(), "node"), counted(grid.intra_node->size(), "rank"));
}

std::string describe_loads(const UnitLoads& unit_load) {
  return unit_load.empty()
             ? "parallel.placement by_load: no load has been logged yet, experts are placed in "
               "runs; a resume places them by load"
             : "parallel.placement by_load: experts are placed by the load that was logged last";
}

/// Runs the trainer; a failure goes to this rank's log file as well, and does not end up behind the
/// console's bar.
TrainingResult run_logged(Trainer& trainer, Console& console, Log& log, int64_t rank) {
  try {
    return trainer.run();
  } catch (...) {
    console.finish();
    log.detail(describe_failure(std::current_exception(), rank).text);
    throw;
  }
}

ExitCode train_on_ranks(const TrainArguments& arguments, const LaunchInfo& launch,
                        const CheckedRecipe& checked, std::unique_ptr<const StopSignals> signals,
                        Communicator& guard) {
  const Recipe& recipe = checked.loaded.options;
  std::unique_ptr<Communicator> world = guard.split(0, guard.rank());
  require_equal_on_ranks(*world, facts_of(recipe));
  check_topology(checked, world->size());
  RankDevices devices = bind_ranks(recipe, launch, guard);
  const DeviceChoice& device = devices.own;
  const int64_t node = ranks_per_node(checked, *world);
  RankGrid grid = make_rank_grid(std::move(world), recipe.parallel.expert_ranks, node,
                                 std::move(devices.gpu_world));
  grid.device = device.device;
  const std::shared_ptr<DataSource> source = make_source(recipe);
  const std::unique_ptr<SampleSet> train_data = source->open(Split::kTrain);
  const std::unique_ptr<SampleSet> valid_data = source->open(Split::kValid);
  const UnitLoads unit_load = logged_loads(recipe, *grid.world);
  Session session(recipe, *train_data, grid, unit_load);
  // What the recipe or its weights refuse is refused before a folder is made or overwritten.
  std::string weights;
  if (recipe.run.on_existing != OnExisting::kResume)
    weights = load_initial_weights(session, recipe);
  const RunFolder folder =
      open_run_folder(recipe.run.root, recipe.run.name, recipe.run.on_existing, *grid.world);
  Console console = make_console();
  PosixFileSystem files;
  const std::unique_ptr<RunLock> lock =
      lock_run_folder(folder.path, *grid.world, files,
                      [&console](const std::string& line) { console.print("warning: " + line); });
  Log log(fmt::format("{}/rank-{:05}.log", folder.logs(), grid.world->rank()), grid.world->rank(),
          [&console](const std::string& line) { console.print(line); });

  CheckpointWriter::Options checkpoints =
      begin_or_resume(session, recipe, folder, {arguments.override_fixed, log});
  write_run_records(folder, recipe, {launch, arguments.command_line, device}, *grid.world);
  log.info(describe_start(session, recipe, folder));
  if (!weights.empty()) log.info("weights start from " + weights);
  log.info(fmt::format("device {}: {}", device.device.str(), device.reason));
  for (const std::string& line : devices.log_lines) log.info(line);
  const std::vector<std::string> notes = recipe_notes(checked);
  for (const std::string& note : notes) log.info(note);
  if (node > 0) log.info(describe_nodes(grid));
  if (recipe.parallel.placement == PlacementRule::kByLoad) log.info(describe_loads(unit_load));
  warn_of_substitutes("data.train", *train_data, log);
  warn_of_substitutes("data.valid", *valid_data, log);
  Trainer trainer({recipe, session, *valid_data, folder, console, log, *signals},
                  std::move(checkpoints));
  TrainingResult result = run_logged(trainer, console, log, grid.world->rank());
  if (recipe.evaluate.every && lacks_summary(result, folder, *grid.world)) {
    result.evaluation = evaluate({session.task(), recipe, *valid_data, grid}, session.steps_done());
  }
  console.finish();
  if (grid.world->rank() == 0) {
    std::cout << write_summary(folder, recipe, result,
                               {train_data->num_substituted(), valid_data->num_substituted()},
                               notes)
              << std::flush;
  }
  return result.code;
}

}  // namespace

ExitCode train(const TrainArguments& arguments, const Environment& environment) {
  // Before all else: a signal while a run is prepared stops it in order, at its first step.
  auto signals = std::make_unique<const StopSignals>();
  const LaunchInfo launch = read_launch_info(environment);
  const CheckedRecipe checked =
      check_recipe(arguments.source, config::UnsetVariable::kRefuse, launch.world);
  const RunOptions& run = checked.loaded.options.run;
  set_threads(choose_threads(run.threads, launch));
  if (run.deterministic) use_deterministic_algorithms();
  recycle_tensor_memory();
  const std::unique_ptr<Communicator> world = make_world(launch);
  // A copy for the work: what it owns is gone by the time a failure is reported. So are the signals
  // noted: the launcher ends the other ranks by one.
  return run_on_ranks(*world, [&] {
    return train_on_ranks(arguments, launch, checked, std::move(signals), *world);
  });
}

}  // namespace shoal
