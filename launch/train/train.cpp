#include "launch/train/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "launch/check/check_recipe.h"
#include "launch/check/memory_estimate.h"
#include "launch/check/recipe_notes.h"
#include "launch/check/topology.h"
#include "launch/data/open_split.h"
#include "launch/data/recipe_source.h"
#include "launch/job/console.h"
#include "launch/job/failure.h"
#include "launch/job/rank_devices.h"
#include "launch/job/rank_facts.h"
#include "launch/machine/break_even_file.h"
#include "launch/machine/machine_facts.h"
#include "launch/model/build_model.h"
#include "launch/model/score_rule.h"
#include "launch/recipe/recipe.h"
#include "launch/report/report.h"
#include "launch/runs/expert_records.h"
#include "launch/runs/run_folder.h"
#include "launch/step/session.h"
#include "launch/train/clock_trial.h"
#include "launch/train/mfu.h"
#include "launch/train/resume.h"
#include "launch/train/run_records.h"
#include "launch/train/trainer.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/signals.h"
#include "sparse/sparse_model.h"

namespace shoal {
namespace {

/// Names samples that were replaced because they are corrupt, which is known only once they have
/// been read. Returns their number over all ranks. Collective.
int64_t log_replaced(const std::string& split, const SampleSet& data, Communicator& world,
                     Log& log) {
  const std::vector<std::string> own =
      data.substituted().empty() ? std::vector<std::string>{} : data.notes();
  for (const std::string& line : gather_lines(world, own))
    log.warn(fmt::format("{}: replaced: {}", split, line));
  return count_substituted(data, world);
}

/// Prints a text unless the console is gone (`shoal train … 2>&1 | head`): the folder has the rest.
void print_summary(const std::string& text, Log& log) {
  if (std::cout << text << std::flush) return;
  log.detail("standard output is lost: the table of results is dropped");
}

/// True if the run was finished but for its last evaluation. Collective.
bool owes_evaluation(const Session& session, const Recipe& recipe, const RunFolder& folder) {
  return session.is_finished() && session.steps_done() <= session.total_steps() &&
         recipe.evaluate.every &&
         lacks_summary(folder, session.steps_done(), *session.grid().world);
}

/// The folder of a run, and this rank's log in it.
struct OpenRun {
  /// `told`: log lines that the console has shown. Collective. Throws as open_run_folder and Log.
  OpenRun(const RunOptions& options, Communicator& world, Console& console,
          const std::vector<std::string>& told)
      : folder(open_run_folder(
            run_path(options), options.on_existing, world, files,
            [&console](const std::string& line) { console.print("warning: " + line); })),
        log(fmt::format("{}/rank-{:05}.log", folder.logs(), world.rank()), world.rank(),
            [&console](const std::string& line) { console.print(line); }) {
    console.when_lost([this](const std::string& why) {
      log.detail(fmt::format("the console is lost ({}): what is meant for it is dropped", why));
    });
    for (const std::string& line : told) log.detail(line);
  }
  OpenRun(const OpenRun&) = delete;
  OpenRun& operator=(const OpenRun&) = delete;

  PosixFileSystem files;
  RunFolder folder;
  Log log;
};

/// Writes the run's page and prints its path. Failure is only a warning, since the run is done.
void write_report(OpenRun& run) {
  const std::string file = report_file(run.folder.path);
  try {
    write_run_report({run.folder.path}, file, run.files);
    print_summary(fmt::format("  {}\n", file), run.log);
  } catch (const std::exception& error) {
    run.log.warn(fmt::format("the report was not written: {}; `shoal report {}` tries again",
                             error.what(), run.folder.path));
  }
}

/// Runs the trainer; a failure also goes to this rank's log file, after the console's bar is gone.
/// If one of several ranks fails, it releases signals and lock and ends the job here: the trainer's
/// end would first wait for a checkpoint being written, and the other ranks for this one.
TrainingResult run_logged(Trainer& trainer, Console& console, OpenRun& run, Communicator& guard,
                          std::unique_ptr<const StopSignals>& signals) {
  try {
    TrainingResult result = trainer.run();
    console.clear();
    return result;
  } catch (...) {
    console.clear();
    const std::exception_ptr error = locate_allocation(std::current_exception(), trainer.place());
    run.log.detail(describe_failure(error, guard.rank()).text);
    if (guard.size() > 1) {
      signals.reset();
      run.folder.lock.reset();
      end_job(error, guard);
    }
    std::rethrow_exception(error);
  }
}

/// Chooses the kernels of a run's sparse layers and tells how many run by them. Returns the
/// break-even densities, as checkpoints keep them, where these decide. A deterministic run takes
/// those built in, since its results must not change with a measurement. Collective.
std::optional<std::string> choose_execution(const Recipe& recipe, const LaunchInfo& launch,
                                            Session& session,
                                            const std::map<std::string, std::string>& written_by,
                                            const Tell& tell) {
  const auto& sparse = session.model().sparse;
  if (sparse == nullptr) return std::nullopt;
  std::optional<ChosenBreakEvens> chosen;
  const bool is_on_gpu = session.grid().device.is_cuda();
  if (recipe.sparsity->execution == SparseExecution::kAuto && !is_on_gpu) {
    const std::string folder = recipe.run.deterministic ? "" : launch.cache_folder;
    chosen = choose_break_evens(written_by, folder, *session.grid().world);
    sparse->run_by(chosen->values.for_training());
  }
  tell(fmt::format(
      "{} of {} sparse layers run by sparse kernels{}{}", sparse->masks().run_by_kernels(),
      sparse->layers().size(), chosen ? "; break-even densities: " + chosen->source : "",
      sparse->has_soft_forms() ? "; others may once their cells are chosen and their orders hard"
                               : ""));
  return chosen ? std::optional(to_text(chosen->values)) : std::nullopt;
}

/// Writes summary and report and prints what to do next, on rank 0, after a warning of each sample
/// that was found corrupt on the way. Collective.
void write_results(const CheckedRecipe& checked, const JobData& data, Communicator& world,
                   OpenRun& run, const TrainingResult& result) {
  const Substituted substituted{log_replaced("data.train", *data.train.samples, world, run.log),
                                log_replaced("data.valid", *data.valid.samples, world, run.log)};
  for (const OpenSet& set : data.sets) {
    log_replaced("evaluate.sets." + set.name, *set.data.samples, world, run.log);
  }
  if (world.rank() != 0) return;
  const bool has_report = !leaves_run_alone(run.folder, result);
  std::vector<std::string> notes = recipe_notes(checked);
  notes.insert(notes.end(), result.notes.begin(), result.notes.end());
  print_summary(write_summary(run.folder, result, substituted, notes), run.log);
  if (has_report) write_report(run);
  if (result.code != ExitCode::kPreempted) return;
  const RunOptions& own = checked.loaded.options.run;
  // on_existing: new may have added a number.
  const std::string added = run.folder.path.substr(run_path(own).size());
  print_summary(fmt::format("\n  stopped (exit code 75); the state is saved, and the same command "
                            "goes on from it with run.name={}{} run.on_existing=resume\n",
                            own.name, added),
                run.log);
}

/// What a training is started with, and its current stage.
struct TrainingJob {
  const TrainArguments& arguments;
  const LaunchInfo& launch;
  CheckedRecipe& checked;
  Communicator& guard;                        ///< joins all ranks; the work has a copy
  std::string stage = "preparing the ranks";  ///< what a failed allocation happened in

  const Recipe& recipe() const { return checked.loaded.options; }
};

/// The ranks of a job, on their devices.
struct JoinedRanks {
  RankDevices devices;
  RankGrid grid;
};

/// Brings together ranks of equal installations and recipes. Collective. Throws as
/// require_equal_ranks, check_topology, bind_ranks and ranks_per_node.
JoinedRanks join_ranks(const TrainingJob& job) {
  const ParallelOptions& parallel = job.recipe().parallel;
  const std::vector<MoeStageInfo>& stages = job.checked.counts.stages;
  std::unique_ptr<Communicator> world = job.guard.split(0, job.guard.rank());
  require_equal_ranks(*world, job.recipe());
  if (world->size() != job.launch.world) {
    check_topology(job.checked.loaded, stages, world->size());
  }
  RankDevices devices = bind_ranks(job.recipe(), job.launch, job.guard);
  const int64_t per_node = ranks_per_node(parallel, stages, job.guard);
  RankGrid grid = make_rank_grid(std::move(world), *parallel.expert_ranks, per_node,
                                 std::move(devices.gpu_world));
  grid.device = devices.own.device;
  return {std::move(devices), std::move(grid)};
}

/// Puts a number of steps in the place of a train.duration that is a time: those of the checkpoint
/// to resume, or what a trial's times give. The trial trains a model of its own and leaves no
/// trace. Returns the time, "" for other durations. Collective.
std::string count_steps(TrainingJob& job, const JobData& data, RankGrid& grid,
                        const std::function<BuiltModel()>& build, const Tell& tell) {
  Recipe& recipe = job.checked.loaded.options;
  if (!recipe.train.duration.is_time()) return "";
  const std::string clock = to_text(recipe.train.duration);
  check_run_folder(run_path(recipe.run), recipe.run.on_existing, *grid.world);
  auto steps = resumed_duration(recipe, *grid.world, job.arguments.override_fixed);
  std::string origin = ", as when the run began";
  if (!steps) {
    tell(fmt::format("train.duration {}: estimated by a short trial, whose steps are discarded",
                     clock));
    Session trial(recipe, build(), data.train, grid);
    load_initial_weights(trial, recipe);
    choose_execution(recipe, job.launch, trial, {}, [](const std::string&) {});
    const TrialTimes times = run_trial(trial, recipe, data);
    const int64_t own = steps_in_time(recipe, times, trial.scale());
    steps = Duration::steps(
        std::stoll(on_rank_zero(*grid.world, [own] { return std::to_string(own); })));
    origin = fmt::format(" at {:.3g} ms per step and {:.3g} s per evaluation", 1000 * times.step_s,
                         times.evaluation_s);
    if (steps->count == 0)
      throw ConfigError(fmt::format("train.duration: {} is too short{}", clock, origin),
                        ExitCode::kTopology);
    origin += ", this machine's speed now; the actual time depends on its load";
  }
  tell(fmt::format("train.duration {}: {}{}", clock, counted(steps->count, "step"), origin));
  recipe.train.duration = *steps;
  return clock;
}

/// Gives a run the classes of the checkpoint that it goes on from (keep_classes). Collective.
void keep_own_classes(TrainingJob& job, Communicator& world, const Tell& tell) {
  CheckedRecipe& checked = job.checked;
  const std::string other = keep_classes(checked.loaded, world, job.arguments.override_fixed);
  if (!other.empty()) tell("warning: " + other);
  const auto& environment = job.arguments.source.environment;
  checked.source = make_source(checked.loaded.options, environment);
  checked.sets = make_set_sources(checked.loaded.options, *checked.source, environment);
}

/// Writes the records of a start. Without a step left, it has no part in the run. Collective.
void record_start(const TrainingJob& job, const OpenRun& run, const Session& session,
                  const DeviceChoice& device, const std::string& clock) {
  if (session.is_finished()) return;
  const ScoreRule rule = score_rule(session.task(), job.recipe().evaluate);
  write_run_records(run.folder, job.checked.loaded,
                    {job.launch, job.arguments.command_line, device, session.steps_done(), clock,
                     session.total_steps(), rule.metric, job.checked.counts.parameters,
                     session.scale().tokens_per_sample},
                    *session.grid().world);
}

ExitCode train_on_ranks(TrainingJob& job, std::unique_ptr<const StopSignals> signals) {
  const Recipe& recipe = job.recipe();
  JoinedRanks ranks = join_ranks(job);
  RankGrid& grid = ranks.grid;
  Console console = make_console(job.launch.columns);
  std::vector<std::string> told =
      require_memory(job.checked, {grid.device, job.launch.local_size}, *grid.world, console);
  const auto tell = [&](const std::string& line) {
    if (grid.world->rank() != 0) return;
    console.print(line);
    told.push_back(line);
  };
  job.stage = "opening the data";
  keep_own_classes(job, *grid.world, tell);
  const JobData data = open_data(recipe, {job.checked.source, job.checked.sets},
                                 choose_workers(job.launch), *grid.world, console);
  job.stage = "building the model";
  const UnitLoads loads = logged_loads(recipe, *grid.world);
  const auto& on_meta = job.checked.model.sparse;
  const auto build = [&] {
    return build_model(recipe, data.train.source->shape(), {&grid, grid.device}, loads,
                       on_meta ? &on_meta->plan() : nullptr);
  };
  const std::string clock = count_steps(job, data, grid, build, tell);
  Session session(recipe, build(), data.train, grid);
  // What the recipe or its weights refuse is refused before a folder is made or overwritten.
  std::string weights;
  if (recipe.run.on_existing != OnExisting::kResume)
    weights = load_initial_weights(session, recipe);
  job.stage = "starting or resuming the run";
  OpenRun run(recipe.run, *grid.world, console, told);
  CheckpointWriter::Options checkpoints =
      begin_or_resume(session, recipe, run.folder, {job.arguments.override_fixed, run.log});
  checkpoints.available_bytes = [bytes = machine_memory().available_bytes / job.launch.local_size] {
    return bytes;
  };
  if (!clock.empty()) checkpoints.written_by[kWrittenClock] = clock;
  const auto kept = checkpoints.written_by.find(kWrittenClock);
  const std::string timed = kept == checkpoints.written_by.end() ? "" : kept->second;
  record_start(job, run, session, ranks.devices.own, timed);
  run.log.info(describe_start(session, recipe, run.folder));
  const auto break_evens =
      choose_execution(recipe, job.launch, session, checkpoints.written_by,
                       [&run](const std::string& line) { run.log.info(line); });
  if (break_evens) checkpoints.written_by[kWrittenBreakEvens] = *break_evens;
  log_start({job.checked, ranks.devices, session, data, !loads.empty(), weights}, run.log);
  job.stage = "preparing the first step";
  Trainer trainer(
      {recipe, session, data.valid, run.folder, console, run.log, *signals,
       owes_evaluation(session, recipe, run.folder),
       mfu_basis(job.checked, job.launch, session, run.log), data.sets, parse_duration(timed)},
      std::move(checkpoints));
  const TrainingResult result = run_logged(trainer, console, run, job.guard, signals);
  job.stage = "writing the summary";
  write_results(job.checked, data, *grid.world, run, result);
  return result.code;
}

/// The line printed at the first signal; null under a launcher, whose script prints one.
const char* signal_notice(const LaunchInfo& launch) {
  if (!launch.launcher.empty()) return nullptr;
  // On a terminal the bar and a ^C stand on the line.
  constexpr const char* kNotice =
      "\nstopping: saves after this step; a second INT or TERM exits immediately\n";
  return isatty(STDERR_FILENO) == 1 ? kNotice : kNotice + 1;
}

}  // namespace

ExitCode train(const TrainArguments& arguments, const Environment& environment) {
  // Before all else: a signal while a run is prepared stops it in order, at its first step.
  const LaunchInfo launch = read_launch_info(environment);
  auto signals = std::make_unique<const StopSignals>(signal_notice(launch));
  CheckedRecipe checked =
      check_recipe(arguments.source, config::UnsetVariable::kRefuse, launch.world);
  const RunOptions& run = checked.loaded.options.run;
  StopSignals::set_grace(run.grace.value());
  set_up_torch(run.threads, run.deterministic, launch);
  const std::unique_ptr<Communicator> world = make_world(launch);
  TrainingJob job{arguments, launch, checked, *world};
  // A copy for the work: what it owns is gone by the time a failure is reported. So are the signals
  // noted: the launcher ends the other ranks by one.
  return run_on_ranks(*world, [&] {
    try {
      return train_on_ranks(job, std::move(signals));
    } catch (...) {
      std::rethrow_exception(locate_allocation(std::current_exception(), job.stage));
    }
  });
}

}  // namespace shoal
