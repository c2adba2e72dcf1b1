#include "launch/train/run_records.h"

#include <ATen/Parallel.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "launch/check/recipe_notes.h"
#include "launch/check/topology.h"
#include "launch/model/model_weights.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/build_info.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "runtime/files/data_file.h"
#include "runtime/files/file_system.h"
#include "runtime/options/config_writer.h"

namespace shoal {
namespace {

using Json = nlohmann::ordered_json;

void write_file(const std::string& path, const std::string& text) {
  PosixFileSystem files;
  replace_file(files, path, text);
}

std::string lines_of(const Json& json) { return json_text(json, /*indent=*/2) + "\n"; }

Json build_json() {
  const BuildInfo& build = build_info();
  return {{"shoal", build.version},
          {"git_revision", build.git_revision},
          {"compiler", build.compiler},
          {"build_type", build.build_type},
          {"torch", build.torch_version},
          {"mpi", build.mpi},
          {"cuda_toolkit", build.cuda_toolkit}};
}

/// The starts that the file lists, and this one.
Json starts_json(const std::string& file, const RunOrigin& origin, int64_t world) {
  const Json before = Json::parse(open_unless_pipe(file), nullptr, /*allow_exceptions=*/false);
  Json starts = before.is_object() ? before.value("starts", Json::array()) : Json::array();
  if (!starts.is_array()) starts = Json::array();
  const std::time_t now = std::time(nullptr);
  starts.push_back({{"step", origin.first_step},
                    {"total_steps", origin.total_steps},
                    {"score", origin.score_metric},
                    {"time", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(now))},
                    {"world", world},
                    {"folder", working_directory()},
                    {"command", origin.command_line}});
  return starts;
}

Json layer_json(const MoeReport& layer) {
  Json json{{"layer", layer.layer},
            {"experts", layer.num_experts()},
            {"load_max_over_mean", max_over_mean(layer)},
            {"load_cv", layer.load_cv},
            {"load_entropy", layer.load_entropy},
            {"dead_experts", layer.dead_units},
            {"dropped", layer.dropped}};
  if (layer.num_memory_units > 0) json["memory_units"] = layer.num_memory_units;
  return json;
}

std::string newest_checkpoint(const RunFolder& folder) {
  const std::vector<int64_t> steps = list_checkpoints(folder.checkpoints());
  return steps.empty() ? "" : folder.checkpoints() + "/" + step_folder(steps.back());
}

/// The time of training, evaluations left out.
double training_seconds(const TrainingResult& result) {
  return result.seconds - result.evaluation_seconds;
}

double samples_per_second(const TrainingResult& result) {
  const double seconds = training_seconds(result);
  const auto samples =
      static_cast<double>((result.last_step - result.first_step) * result.samples_per_step);
  return seconds > 0 ? samples / seconds : 0.0;
}

/// True if a summary of the run's last step is there.
bool is_summarised(const std::string& path, int64_t step) {
  const Json json = Json::parse(open_unless_pipe(path), nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("steps") && json["steps"] == step &&
         json.contains("exit_code") && json["exit_code"] == 0;
}

/// The text that a resume which trains nothing ends with.
std::string describe_nothing_done(const RunFolder& folder, const TrainingResult& result) {
  const std::string what =
      result.last_step > result.total_steps
          ? fmt::format(
                "nothing was trained: the checkpoint is at step {}, and train.duration ends "
                "at step {}",
                result.last_step, result.total_steps)
          : fmt::format("the run was finished already, at step {}", result.last_step);
  return fmt::format(
      "\n  {}; its records, summary and report stay as they are\n  to go on, raise {}\n  {}\n",
      what, result.last_step < result.total_steps ? "or remove train.patience" : "train.duration",
      folder.path);
}

using Rows = std::vector<std::vector<std::string>>;

/// Adds the number of steps and the time of this process's own; that of earlier ones is unknown.
void add_steps(const TrainingResult& result, Rows& rows) {
  rows.push_back({"steps", fmt::format("{} ({} each)", result.last_step,
                                       counted(result.samples_per_step, "sample"))});
  const int64_t steps = result.last_step - result.first_step;
  if (steps == 0) return;
  if (result.first_step > 0) {
    rows.push_back({"this session",
                    fmt::format("{}, after step {}", counted(steps, "step"), result.first_step)});
  }
  const double seconds = training_seconds(result);
  const double rate = samples_per_second(result) * static_cast<double>(result.unit.per_sample);
  const std::string mfu = result.mfu ? fmt::format(", mfu {:.1f}%", 100 * *result.mfu) : "";
  std::string time = fmt::format("{} of training ({:.0f} {}/s{})", human_seconds(seconds), rate,
                                 result.unit.name, mfu);
  if (result.evaluation_seconds > 0) {
    time += fmt::format(", {} of evaluation", human_seconds(result.evaluation_seconds));
  }
  rows.push_back({"time", time});
}

Rows result_rows(const TrainingResult& result, const Substituted& substituted) {
  Rows rows{{"result", "value"}};
  add_steps(result, rows);
  if (result.report) {
    rows.push_back({"training loss", fmt::format("{:.4f}", result.report->loss)});
  }
  if (result.evaluation) {
    for (const Metric& metric : result.evaluation->metrics) {
      // The training has a loss, too.
      const bool is_loss = metric.name == "loss";
      rows.push_back({(is_loss ? "validation " : "") + metric.label, to_text(metric)});
    }
  }
  if (substituted.train + substituted.valid > 0) {
    rows.push_back({"corrupt samples", fmt::format("{} of training, {} of validation, replaced",
                                                   substituted.train, substituted.valid)});
  }
  return rows;
}

void log_split(const std::string& split, const SampleSet& data, Log& log) {
  for (const std::string& note : data.notes()) log.info(fmt::format("{}: {}", split, note));
  for (const std::string& line : data.warnings()) log.warn(fmt::format("{}: {}", split, line));
  const auto num_corrupt = std::ssize(data.substituted());
  if (num_corrupt == 0) return;
  log.warn(fmt::format("{}: {} of {} samples are corrupt; the next good ones replace them", split,
                       num_corrupt, data.size()));
}

/// Logs devices, notes on the recipe, and where units are.
void log_layout(const RunStart& start, Log& log) {
  const CheckedRecipe& checked = start.checked;
  const RankGrid& grid = start.session.grid();
  const DeviceChoice& device = start.devices.own;
  log.info(fmt::format("device {}: {}", device.device.str(), device.reason));
  for (const std::string& line : start.devices.log_lines) log.info(line);
  for (const std::string& note : recipe_notes(checked, device.device.is_cuda())) log.info(note);
  PosixFileSystem files;
  for (const std::string& line : recipe_warnings(checked, grid.world->size(), files)) {
    log.warn(line);
  }
  if (has_hierarchical_exchange(checked.counts.stages)) {
    log.info(fmt::format("hierarchical exchange: the ranks of an expert group are on {} of {}",
                         counted(grid.num_nodes(), "node"),
                         counted(grid.expert->size() / grid.num_nodes(), "rank")));
  }
  if (checked.loaded.options.parallel.placement == PlacementRule::kByLoad) {
    log.info(start.has_loads
                 ? "parallel.placement by_load: experts are placed by the load that was logged last"
                 : "parallel.placement by_load: no load has been logged yet, experts are placed in "
                   "runs; a resume places them by load");
  }
}

/// Logs corrupt samples, and that there are fewer samples than a step takes.
void log_data(const Recipe& recipe, const JobData& data, Log& log) {
  log_split("data.train", *data.train.samples, log);
  log_split("data.valid", *data.valid.samples, log);
  if (data.valid.drawn_from) log.info("data.valid: " + describe_draw(data.valid));
  for (const OpenSet& set : data.sets) {
    log_split("evaluate.sets." + set.name, *set.data.samples, log);
    if (set.data.drawn_from) log.info(set.name + ": " + describe_draw(set.data));
  }
  const int64_t samples = data.train.samples->size();
  if (samples >= recipe.train.batch) return;
  log.warn(
      fmt::format("data.train: {} for a train.batch of {}: each step takes some of them more "
                  "than once; name more data, or lower train.batch",
                  counted(samples, "sample"), recipe.train.batch));
}

}  // namespace

bool leaves_run_alone(const RunFolder& folder, const TrainingResult& result) {
  if (result.code != ExitCode::kOk || result.first_step < result.last_step) return false;
  return result.last_step > result.total_steps ||
         is_summarised(folder.file("summary.json"), result.last_step);
}

void write_run_records(const RunFolder& folder, const LoadedRecipe& recipe, const RunOrigin& origin,
                       Communicator& world) {
  const std::vector<std::string> hosts = gather_text(world, host_name());
  if (world.rank() != 0) return;
  write_file(folder.file("resolved.yaml"),
             config::emit(config::to_node(recipe.options), [&](const std::string& path) {
               const bool is_timed = path == "train.duration" && !origin.clock.empty();
               return is_timed ? origin.clock + ", timed when the run began"
                               : origins_of(recipe)(path);
             }));
  const Json env{{"build", build_json()},
                 {"command", origin.command_line},
                 {"launcher", origin.launch.launcher.empty() ? "none" : origin.launch.launcher},
                 {"world", world.size()},
                 {"hosts", hosts},
                 {"threads_per_rank", at::get_num_threads()},
                 {"device", origin.device.device.str()},
                 {"device_reason", origin.device.reason},
                 {"parameters", origin.parameters},
                 {"tokens_per_sample", origin.tokens_per_sample},
                 {"starts", starts_json(folder.file("env.json"), origin, world.size())}};
  write_file(folder.file("env.json"), lines_of(env));
}

std::string describe_start(const Session& session, const Recipe& recipe, const RunFolder& folder) {
  const RankGrid& grid = session.grid();
  const std::string end =
      session.steps_done() < session.total_steps()
          ? "train.patience ended the training"
          : fmt::format("train.duration ends at step {}", session.total_steps());
  const std::string steps =
      session.is_finished()
          ? fmt::format("no step is left at step {}, as {}", session.steps_done(), end)
          : fmt::format("steps {} to {}, {} each", session.steps_done() + 1, session.total_steps(),
                        counted(recipe.train.batch, "sample"));
  return fmt::format("{}: {} parameters on this rank, {} = {} x {}, {} each; {}; folder {}",
                     recipe.model.backbone.name(), count_elements(session.parameters()),
                     counted(grid.world->size(), "rank"),
                     counted(grid.expert->size(), "expert-parallel rank"),
                     counted(grid.replica->size(), "replica"),
                     counted(at::get_num_threads(), "thread"), steps, folder.path);
}

void log_start(const RunStart& start, Log& log) {
  const Session& session = start.session;
  log_layout(start, log);
  if (!start.weights.empty()) log.info("weights start from " + start.weights);
  if (session.steps_done() > session.total_steps()) {
    log.warn(past_end_warning(session.total_steps(), session.steps_done()));
  }
  for (const std::string& line : schedule_warnings(start.checked, session.scale())) log.warn(line);
  log_data(start.checked.loaded.options, start.data, log);
}

bool lacks_summary(const RunFolder& folder, int64_t step, Communicator& world) {
  return on_rank_zero(world, [&] {
           return is_summarised(folder.file("summary.json"), step) ? "no" : "yes";
         }) == "yes";
}

std::string write_summary(const RunFolder& folder, const TrainingResult& result,
                          const Substituted& substituted, const std::vector<std::string>& notes) {
  if (leaves_run_alone(folder, result)) return describe_nothing_done(folder, result);
  const std::string checkpoint = newest_checkpoint(folder);
  Json json{{"exit_code", static_cast<int>(result.code)},
            {"first_step", result.first_step},
            {"steps", result.last_step},
            {"seconds", result.seconds},
            {"evaluation_seconds", result.evaluation_seconds},
            {"samples_per_second", samples_per_second(result)},
            {"skipped_steps", result.skipped_steps},
            {"failed_saves", result.failed_saves},
            {"substituted", {{"train", substituted.train}, {"valid", substituted.valid}}},
            {"checkpoint", checkpoint},
            {"notes", notes}};
  if (result.mfu) json["mfu"] = *result.mfu;
  if (result.report) {
    json["loss"] = result.report->loss;
    for (const MoeReport& layer : result.report->moe) {
      json["moe"].push_back(layer_json(layer));
    }
  }
  if (result.evaluation) json["evaluation"] = to_json(*result.evaluation);
  write_file(folder.file("summary.json"), lines_of(json));
  std::string text = fmt::format("\n{}\n", text_table(result_rows(result, substituted)));
  if (result.report && !result.report->moe.empty()) {
    text += fmt::format("{}\n", expert_table(result.report->moe));
  }
  for (const char* name :
       {"resolved.yaml", "env.json", "metrics.jsonl", "metrics.csv", "experts.jsonl",
        "layers.jsonl", "pictures.png", "tb/", "summary.json", "log/"}) {
    if (std::filesystem::exists(folder.file(name)))
      text += fmt::format("  {}\n", folder.file(name));
  }
  if (!checkpoint.empty()) text += fmt::format("  {}\n", checkpoint);
  return text;
}

}  // namespace shoal
