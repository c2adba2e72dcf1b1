#include "launch/train/train.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "launch/check/check_recipe.h"
#include "launch/check/memory_check.h"
#include "launch/check/recipe_notes.h"
#include "launch/evaluate/evaluation.h"
#include "launch/job/failure.h"
#include "launch/job/rank_devices.h"
#include "launch/job/rank_facts.h"
#include "launch/machine/break_even_file.h"
#include "launch/model/sparse_execution.h"
#include "launch/recipe/recipe.h"
#include "launch/report/report.h"
#include "launch/runs/run_folder.h"
#include "launch/runs/unit_loads.h"
#include "launch/train/mfu_basis.h"
#include "launch/train/resume.h"
#include "launch/train/run_records.h"
#include "launch/train/trainer.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/signals.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

void log_split(const char* split, const SampleSet& data, Log& log) {
  for (const std::string& note : data.notes()) log.info(fmt::format("{}: {}", split, note));
  const auto num_corrupt = std::ssize(data.substituted());
  if (num_corrupt == 0) return;
  log.warn(fmt::format("{}: {} of {} samples are corrupt; the next good ones replace them", split,
                       num_corrupt, data.size()));
}

/// What a job trains on and what it is evaluated on.
struct JobData {
  OpenSplit train, valid;
};

/// Collective. Throws what require_equal_on_ranks throws where the ranks' data differ.
JobData open_data(const CheckedRecipe& checked, const LaunchInfo& launch, Communicator& world,
                  Console& console) {
  const int64_t workers = choose_workers(launch);
  JobData data{open_split(checked.source, Split::kTrain, workers),
               open_split(checked.source, Split::kValid, workers)};
  // Once, though each evaluation starts workers.
  const auto told = std::make_shared<std::set<std::string>>();
  data.train.warn = data.valid.warn = [&console, told, rank = world.rank()](const auto& line) {
    if (told->insert(line).second) console.print(fmt::format("warning: rank {}: {}", rank, line));
  };
  require_equal_on_ranks(world, {{"training data", data.train.fingerprint},
                                 {"validation data", data.valid.fingerprint}});
  return data;
}

/// Names samples that were replaced because they are corrupt, which is known only once they have
/// been read. Returns their number over all ranks. Collective.
int64_t log_replaced(const char* split, const SampleSet& data, Communicator& world, Log& log) {
  const std::vector<std::string> own =
      data.substituted().empty() ? std::vector<std::string>{} : data.notes();
  std::set<std::string> lines;
  for (const std::string& text : gather_text(world, fmt::format("{}", fmt::join(own, "\n")))) {
    std::istringstream read(text);
    for (std::string line; std::getline(read, line);) lines.insert(line);
  }
  for (const std::string& line : lines) log.warn(fmt::format("{}: replaced: {}", split, line));
  return count_substituted(data, world);
}

bool has_hierarchical_exchange(const CheckedRecipe& checked) {
  return std::ranges::any_of(checked.counts.stages, &MoeStageInfo::is_hierarchical);
}

/// What make_rank_grid takes for a node: 0 unless some stage asks. Collective.
int64_t ranks_per_node(const CheckedRecipe& checked, Communicator& world) {
  if (!has_hierarchical_exchange(checked)) return 0;
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

/// What the log opens with: devices, notes on the recipe, and where units are.
void log_layout(const CheckedRecipe& checked, const RankDevices& devices, const RankGrid& grid,
                const UnitLoads& unit_load, Log& log) {
  log.info(fmt::format("device {}: {}", devices.own.device.str(), devices.own.reason));
  for (const std::string& line : devices.log_lines) log.info(line);
  for (const std::string& note : recipe_notes(checked)) log.info(note);
  PosixFileSystem files;
  for (const std::string& line : recipe_warnings(checked, grid.world->size(), files)) {
    log.warn(line);
  }
  if (has_hierarchical_exchange(checked)) {
    log.info(fmt::format("hierarchical exchange: the ranks of an expert group are on {} of {}",
                         counted(grid.num_nodes(), "node"),
                         counted(grid.intra_node->size(), "rank")));
  }
  if (checked.loaded.options.parallel.placement == PlacementRule::kByLoad) {
    log.info(unit_load.empty()
                 ? "parallel.placement by_load: no load has been logged yet, experts are placed in "
                   "runs; a resume places them by load"
                 : "parallel.placement by_load: experts are placed by the load that was logged "
                   "last");
  }
}

/// Where the training begins and ends. A run that is past the end of its recipe trains nothing,
/// which is hardly what was asked for.
void log_course(const Session& session, const CheckedRecipe& checked, const std::string& weights,
                Log& log) {
  if (!weights.empty()) log.info("weights start from " + weights);
  if (session.steps_done() > session.total_steps()) {
    log.warn(past_end_warning(session.total_steps(), session.steps_done()));
  }
  for (const std::string& line : schedule_warnings(checked, session.scale())) log.warn(line);
}

/// Corrupt samples, and fewer samples than a step takes.
void log_data(const Recipe& recipe, const JobData& data, Log& log) {
  log_split("data.train", *data.train.samples, log);
  log_split("data.valid", *data.valid.samples, log);
  const int64_t samples = data.train.samples->size();
  if (samples >= recipe.train.batch) return;
  log.warn(
      fmt::format("data.train: {} for a train.batch of {}: each step takes some of them more "
                  "than once; name more data, or lower train.batch",
                  counted(samples, "sample"), recipe.train.batch));
}

/// The console may go before the training ends, as in `shoal train … 2>&1 | head`: the rest of the
/// run is in its folder.
void print_summary(const std::string& text, Log& log) {
  if (std::cout << text << std::flush) return;
  log.detail("standard output is lost: the table of results is dropped");
}

/// Whether the run was finished but for its last evaluation. Collective.
bool owes_evaluation(const Session& session, const Recipe& recipe, const RunFolder& folder) {
  return session.steps_done() == session.total_steps() && recipe.evaluate.every &&
         lacks_summary(folder, session.steps_done(), *session.grid().world);
}

/// What MFU is relative to, after warnings about the cores; nothing without a step left.
/// Collective.
std::optional<MfuBasis> mfu_of(const CheckedRecipe& checked, const LaunchInfo& launch,
                               Session& session, Log& log) {
  if (session.steps_done() >= session.total_steps()) return std::nullopt;
  const TimedProducts timed = time_cores(checked.loaded.options, launch, session.grid(), log);
  return mfu_basis(checked, timed, session.grid(), log);
}

/// On the recipe and on what training met.
std::vector<std::string> all_notes(const CheckedRecipe& checked, const TrainingResult& result) {
  std::vector<std::string> notes = recipe_notes(checked);
  notes.insert(notes.end(), result.notes.begin(), result.notes.end());
  return notes;
}

/// Writes the page on the run and prints where it is. The run is done by now: that the page cannot
/// be written is a warning.
void write_report(const RunFolder& folder, FileSystem& files, Log& log) {
  const std::string file = report_file(folder.path);
  try {
    write_run_report({folder.path}, file, files);
    print_summary(fmt::format("  {}\n", file), log);
  } catch (const std::exception& error) {
    log.warn(fmt::format("the report was not written: {}; `shoal report {}` tries again",
                         error.what(), folder.path));
  }
}

/// Runs the trainer; a failure goes to this rank's log file as well, and does not end up behind the
/// console's bar. Of several ranks, one that fails ends the job here: the trainer's end would first
/// wait for a checkpoint being written, and the others for this rank. `let_go` is called before.
TrainingResult run_logged(Trainer& trainer, Console& console, Log& log, Communicator& guard,
                          const std::function<void()>& let_go) {
  try {
    TrainingResult result = trainer.run();
    console.finish();
    return result;
  } catch (...) {
    console.finish();
    const std::exception_ptr error = locate_allocation(std::current_exception(), trainer.place());
    log.detail(describe_failure(error, guard.rank()).text);
    let_go();
    if (guard.size() > 1) end_job(error, guard);
    std::rethrow_exception(error);
  }
}

/// Chooses the kernels of a run's sparse layers and logs how many run by them. Returns the
/// break-even densities, as checkpoints keep them, where these decide. A deterministic run takes
/// those built in, since its results must not change with a measurement. Collective.
std::optional<std::string> choose_execution(const Recipe& recipe, const LaunchInfo& launch,
                                            Session& session,
                                            const std::map<std::string, std::string>& written_by,
                                            Log& log) {
  PruneGrow* sparse = session.prune_grow();
  if (sparse == nullptr) return std::nullopt;
  std::optional<ChosenBreakEvens> chosen;
  const bool is_on_gpu = session.grid().device.is_cuda();
  if (recipe.sparsity->execution == SparseExecution::kAuto && !is_on_gpu) {
    const std::string folder = recipe.run.deterministic ? "" : launch.cache_folder;
    chosen = choose_break_evens(written_by, folder, *session.grid().world);
    run_sparse_layers(recipe, session.model(), chosen->values, *sparse);
  }
  const auto is_soft = [](const auto& form) { return form->is_soft(); };
  const bool has_soft_forms = std::ranges::any_of(session.model().soft_cells, is_soft) ||
                              std::ranges::any_of(session.model().permutations, is_soft);
  log.info(fmt::format(
      "{} of {} sparse layers run by sparse kernels{}{}", sparse->run_by_kernels(),
      sparse->layers().size(), chosen ? "; break-even densities: " + chosen->source : "",
      has_soft_forms ? "; others may once their cells are chosen and their orders hard" : ""));
  return chosen ? std::optional(to_text(chosen->values)) : std::nullopt;
}

/// What a run ended with, and where it is written.
struct RunEnd {
  const CheckedRecipe& checked;
  const JobData& data;
  Communicator& world;
  const RunFolder& folder;
  const TrainingResult& result;
};

/// Summary and report, on rank 0, after what was found corrupt on the way, then what to do next.
/// Collective.
void write_results(const RunEnd& end, Log& log) {
  const Substituted substituted{
      log_replaced("data.train", *end.data.train.samples, end.world, log),
      log_replaced("data.valid", *end.data.valid.samples, end.world, log)};
  if (end.world.rank() != 0) return;
  const bool has_report = !leaves_run_alone(end.folder, end.result);
  print_summary(
      write_summary(end.folder, end.result, substituted, all_notes(end.checked, end.result)), log);
  PosixFileSystem files;
  if (has_report) write_report(end.folder, files, log);
  print_summary(next_step(end.result), log);
}

/// What a training is started with, and its current stage.
struct TrainingJob {
  const TrainArguments& arguments;
  const LaunchInfo& launch;
  const CheckedRecipe& checked;
  Communicator& guard;                        ///< of all ranks; the work has a copy
  std::string stage = "preparing the ranks";  ///< what a failed allocation happened in
};

/// Calls require_memory. Returns the lines shown on the console, for a log that is not open yet.
/// Collective.
std::vector<std::string> check_memory(const TrainingJob& job, const RankGrid& grid,
                                      Console& console) {
  std::vector<std::string> lines;
  require_memory(job.checked, {grid.device, job.launch.local_size}, *grid.world,
                 [&](const std::string& line) {
                   console.print(line);
                   lines.push_back(line);
                 });
  return lines;
}

ExitCode train_on_ranks(TrainingJob& job, std::unique_ptr<const StopSignals> signals) {
  const CheckedRecipe& checked = job.checked;
  const LaunchInfo& launch = job.launch;
  Communicator& guard = job.guard;
  const Recipe& recipe = checked.loaded.options;
  std::unique_ptr<Communicator> world = guard.split(0, guard.rank());
  require_equal_ranks(*world, recipe);
  if (world->size() != launch.world) check_topology(checked, world->size());
  RankDevices devices = bind_ranks(recipe, launch, guard);
  RankGrid grid = make_rank_grid(std::move(world), recipe.parallel.expert_ranks,
                                 ranks_per_node(checked, guard), std::move(devices.gpu_world));
  grid.device = devices.own.device;
  Console console = make_console(launch.columns);
  const std::vector<std::string> memory_lines = check_memory(job, grid, console);
  job.stage = "opening the data";
  const JobData data = open_data(checked, launch, *grid.world, console);
  job.stage = "building the model";
  const UnitLoads unit_load = logged_loads(recipe, *grid.world);
  Session session(recipe, data.train, grid, unit_load);
  // What the recipe or its weights refuse is refused before a folder is made or overwritten.
  std::string weights;
  if (recipe.run.on_existing != OnExisting::kResume)
    weights = load_initial_weights(session, recipe);
  job.stage = "starting or resuming the run";
  PosixFileSystem files;
  RunFolder folder =
      open_run_folder((std::filesystem::path(recipe.run.root) / recipe.run.name).string(),
                      recipe.run.on_existing, *grid.world, files,
                      [&console](const std::string& line) { console.print("warning: " + line); });
  Log log(fmt::format("{}/rank-{:05}.log", folder.logs(), grid.world->rank()), grid.world->rank(),
          [&console](const std::string& line) { console.print(line); });
  console.when_lost([&log](const std::string& why) {
    log.detail(fmt::format("the console is lost ({}): what is meant for it is dropped", why));
  });
  for (const std::string& line : memory_lines) log.detail(line);
  CheckpointWriter::Options checkpoints =
      begin_or_resume(session, recipe, folder, {job.arguments.override_fixed, log});
  const RunOrigin origin{launch, job.arguments.command_line, devices.own, session.steps_done()};
  // Without a step left, this start had no part in the run.
  if (session.steps_done() < session.total_steps()) {
    write_run_records(folder, checked.loaded, origin, *grid.world);
  }
  log.info(describe_start(session, recipe, folder));
  const auto break_evens = choose_execution(recipe, launch, session, checkpoints.written_by, log);
  if (break_evens) checkpoints.written_by[kWrittenBreakEvens] = *break_evens;
  log_layout(checked, devices, grid, unit_load, log);
  log_course(session, checked, weights, log);
  log_data(recipe, data, log);
  job.stage = "preparing the first step";
  Trainer trainer({recipe, session, data.valid, folder, console, log, *signals,
                   owes_evaluation(session, recipe, folder), mfu_of(checked, launch, session, log)},
                  std::move(checkpoints));
  const TrainingResult result = run_logged(trainer, console, log, guard, [&] {
    signals.reset();
    folder.lock.reset();
  });
  job.stage = "writing the summary";
  write_results({checked, data, *grid.world, folder, result}, log);
  return result.code;
}

/// The line that the signal handler prints at the first signal; null under a launcher, whose
/// script prints one.
const char* signal_notice(const LaunchInfo& launch) {
  if (!launch.launcher.empty()) return nullptr;
  // On a terminal the bar and a ^C stand on the line.
  constexpr const char* kNotice =
      "\nstopping: saves after this step; a second INT or TERM leaves at once\n";
  return isatty(STDERR_FILENO) == 1 ? kNotice : kNotice + 1;
}

}  // namespace

ExitCode train(const TrainArguments& arguments, const Environment& environment) {
  // Before all else: a signal while a run is prepared stops it in order, at its first step.
  const LaunchInfo launch = read_launch_info(environment);
  auto signals = std::make_unique<const StopSignals>(signal_notice(launch));
  const CheckedRecipe checked =
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
