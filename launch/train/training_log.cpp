#include "launch/train/training_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "launch/machine/machine_facts.h"
#include "launch/train/recurrence.h"
#include "moe/moe_metrics.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// The columns of metrics.csv: what each step has, and what the task's evaluations add.
std::vector<std::string> columns_with(const std::vector<std::string>& metrics) {
  std::vector<std::string> columns{
      "step",        "event",         "samples",      "loss",
      "lr",          "grad_norm",     "skipped",      "samples_per_second",
      "data_wait",   "all_to_all_ms", "memory_bytes", "moe_load_max",
      "moe_dropped", "seconds"};
  for (const std::string& metric : metrics) {
    if (std::ranges::find(columns, metric) == columns.end()) {
      columns.push_back(metric);
    }
  }
  return columns;
}

MetricsRecord experts_record(const MoeReport& layer, int64_t step) {
  MetricsRecord record;
  record.add("step", step).add("layer", layer.layer).add("tokens", layer.tokens);
  record.add("load", layer.load_U);
  if (layer.num_memory_units > 0) record.add("memory_units", layer.num_memory_units);
  record.add("load_min", layer.load_min).add("load_max", layer.load_max);
  record.add("load_mean", layer.load_mean).add("load_cv", layer.load_cv);
  record.add("load_entropy", layer.load_entropy).add("router_entropy", layer.router_entropy);
  if (!layer.mean_score_U.empty()) record.add("mean_score", layer.mean_score_U);
  if (layer.mutual_information) record.add("mutual_information", *layer.mutual_information);
  if (layer.multiply_adds) record.add("multiply_adds_per_token", *layer.multiply_adds);
  record.add("dead_experts", layer.dead_units).add("dropped", layer.dropped);
  record.add("unrouted", layer.unrouted);
  record.add("rank_overload", layer.rank_overload_E);
  for (const auto& [name, value] : layer.losses) record.add("loss_" + name, value);
  return record;
}

}  // namespace

double max_over_mean(const MoeReport& layer) {
  return layer.load_mean > 0 ? layer.load_max / layer.load_mean : 0.0;
}

std::string expert_table(const std::vector<MoeReport>& layers) {
  const bool has_memory = std::ranges::any_of(
      layers, [](const MoeReport& layer) { return layer.num_memory_units > 0; });
  std::vector<std::vector<std::string>> rows{
      {"MoE layer", "experts", "load max/mean", "load CV", "entropy", "dead", "dropped"}};
  if (has_memory) rows[0].insert(rows[0].begin() + 2, "memory units");
  for (const MoeReport& layer : layers) {
    rows.push_back({layer.layer, std::to_string(layer.num_experts()),
                    fmt::format("{:.2f}", max_over_mean(layer)),
                    fmt::format("{:.2f}", layer.load_cv), fmt::format("{:.3f}", layer.load_entropy),
                    std::to_string(layer.dead_units), fmt::format("{:.1f}%", 100 * layer.dropped)});
    if (!has_memory) continue;
    rows.back().insert(rows.back().begin() + 2, std::to_string(layer.num_memory_units));
  }
  return text_table(rows);
}

TrainingLog::TrainingLog(const Start& start, Console& console, Log& log)
    : world_(start.world),
      console_(console),
      log_(log),
      last_time_(std::chrono::steady_clock::now()),
      peak_samples_(start.samples_per_second_at_peak),
      evaluates_every_(start.evaluates_every),
      clock_(start.clock),
      start_(last_time_),
      first_step_(start.first_step),
      last_step_(start.first_step) {
  if (world_.rank() != 0) return;
  const RunFolder& folder = start.folder;
  files_.emplace(Files{{folder.file("metrics.jsonl"), start.first_step},
                       {},
                       {},
                       {folder.file("metrics.csv"), columns_with(start.metrics), start.first_step},
                       {folder.file("pictures.png"), start.first_step},
                       {}});
  if (start.has_experts) files_->experts.emplace(folder.file("experts.jsonl"), start.first_step);
  // Those of a run that no longer logs norms are cut to the resumed step as well.
  const std::string norms = folder.file("layers.jsonl");
  if (start.has_norms || std::filesystem::exists(norms)) {
    files_->norms.emplace(norms, start.first_step);
  }
  for (const auto& log_of_layers : start.layers) {
    LayerFile& file = files_->layers.emplace_back();
    file.log = log_of_layers;
    const std::string name = log_of_layers->file();
    if (!name.empty()) file.lines.emplace(folder.file(name), start.first_step);
  }
  if (start.has_tensorboard) files_->events.emplace(folder.file("tb"), start.first_step + 1);
}

template <class File, class Record>
void TrainingLog::write(File& file, const Record& record) {
  try {
    file.write(record);
    waiting_files_.erase(&file);
  } catch (const StorageError& error) {
    const bool is_first = waiting_files_.insert(&file).second;
    if (!is_first) return;
    log_.warn(fmt::format("[E21] {}; training goes on, {}", error.what(), error.hint()));
  }
}

void TrainingLog::finish() {
  if (!files_) return;
  std::string lost;
  const auto finish_file = [&lost](auto& file) {
    try {
      file.finish();
    } catch (const StorageError& error) {
      lost += (lost.empty() ? "" : "; ") + std::string(error.what());
    }
  };
  finish_file(files_->metrics);
  if (files_->experts) finish_file(*files_->experts);
  if (files_->norms) finish_file(*files_->norms);
  for (LayerFile& file : files_->layers) {
    if (file.lines) finish_file(*file.lines);
  }
  finish_file(files_->table);
  finish_file(files_->pictures);
  if (files_->events) {
    if (const std::optional<StepEvent> rest = events_.rest()) write(*files_->events, *rest);
    finish_file(*files_->events);
  }
  if (!lost.empty()) throw StorageError(lost, "free some space on this disk");
}

Progress TrainingLog::progress(const StepOutcome& outcome, const StepReport& report,
                               const Session& session) {
  const auto now = std::chrono::steady_clock::now();
  const double seconds =
      std::max(1e-9, std::chrono::duration<double>(now - last_time_).count() - left_out_s_);
  const std::optional<double> wait_s = session.exchange_wait_seconds();
  Progress result;
  result.step = session.steps_done();
  const auto steps = static_cast<double>(result.step - last_step_);
  result.total_steps = session.total_steps();
  result.loss = report.loss;
  result.lr = outcome.lr;
  result.grad_norm = outcome.grad_norm;
  const RateUnit unit = session.task().unit();
  result.unit = unit.name;
  result.items_per_second =
      steps * static_cast<double>(session.scale().samples_per_step * unit.per_sample) / seconds;
  if (peak_samples_) {
    const auto samples = static_cast<double>(session.scale().samples_per_step);
    result.mfu = steps * samples * report.computed_share / seconds / *peak_samples_;
  }
  result.ranks = world_.size();
  for (const MoeReport& layer : report.moe) {
    result.dropped_share =
        result.dropped_share.value_or(0.0) + layer.dropped / static_cast<double>(report.moe.size());
    result.load_max_over_mean =
        std::max(result.load_max_over_mean.value_or(0.0), max_over_mean(layer));
  }
  if (wait_s) result.all_to_all_ms = 1e3 * (*wait_s - last_wait_s_) / std::max(1.0, steps);
  result.data_wait_share = data_wait_s_ / seconds;
  result.memory_bytes = resident_bytes();
  result.seconds_left = seconds_left(session, seconds / std::max(1.0, steps));
  watch_clock(seconds, steps, session);
  last_time_ = now;
  last_step_ = result.step;
  last_wait_s_ = wait_s.value_or(0.0);
  left_out_s_ = data_wait_s_ = 0.0;
  return result;
}

double TrainingLog::seconds_left(const Session& session, double seconds_a_step) const {
  const int64_t step = session.steps_done();
  const double steps_s = static_cast<double>(session.total_steps() - step) * seconds_a_step;
  if (!evaluates_every_ || num_evaluations_ == 0) return steps_s;
  const auto left =
      static_cast<double>(times_left(*evaluates_every_, step, session.scale(), steps_s));
  return steps_s + left * evaluations_s_ / static_cast<double>(num_evaluations_);
}

// Compares after a tenth of the time, as long as a trial: a few steps may be slow by chance.
void TrainingLog::watch_clock(double seconds, double steps, const Session& session) {
  if (!clock_ || session.is_finished()) return;
  watched_s_ += seconds;
  watched_steps_ += steps;
  if (watched_s_ < clock_->value() / 10) return;
  const double before_s =  // of earlier starts, as they were counted
      clock_->value() * static_cast<double>(first_step_) /
      static_cast<double>(session.total_steps());
  const double total_s = before_s + seconds_since(start_) +
                         seconds_left(session, watched_s_ / std::max(1.0, watched_steps_));
  watched_s_ = watched_steps_ = 0.0;
  if (total_s <= 2 * clock_->value()) return;
  log_.warn(fmt::format(
      "train.duration {}: at its present speed the training takes about {}, as its steps were "
      "counted under another load; run.stop_after bounds the time: it saves and ends",
      to_text(*clock_), human_seconds(total_s)));
  clock_.reset();
}

void TrainingLog::step(const StepOutcome& outcome, const StepReport& report,
                       const Session& session) {
  if (!files_) return;
  const int64_t done = session.steps_done();
  std::vector<LayerLog::Report> layers;
  for (const LayerFile& file : files_->layers) {
    layers.push_back(file.log->report(done, outcome.applied));
  }
  Progress shown = progress(outcome, report, session);
  const auto per_sample = static_cast<double>(session.task().unit().per_sample);
  MetricsRecord record;
  record.add("step", done);
  record.add("samples", done * session.scale().samples_per_step);
  record.add_exact("loss", report.loss).add("lr", outcome.lr);
  record.add_exact("grad_norm", outcome.grad_norm);
  if (!outcome.applied) record.add("skipped", "not finite: " + outcome.not_finite);
  record.add("samples_per_second", shown.items_per_second / per_sample);
  if (shown.mfu) record.add("mfu", *shown.mfu);
  record.add("data_wait", shown.data_wait_share);
  if (shown.all_to_all_ms) record.add("all_to_all_ms", *shown.all_to_all_ms);
  record.add("memory_bytes", shown.memory_bytes);
  add_moe_metrics(report.moe, record);
  for (const LayerLog::Report& layer : layers) {
    for (const auto& [key, value] : layer.means.entries()) record.add(key, value);
    if (!layer.shown.empty()) shown.layers.push_back(layer.shown);
  }
  write(files_->metrics, record);
  write(files_->table, record);
  if (files_->events) {
    constexpr size_t kMost = TensorBoardEvents::kMostLayers;
    if (!has_logged_ && report.moe.size() > kMost) {
      log_.info(fmt::format(
          "tb/ has numbers and histograms of the first {} of {} MoE layers, and pictures of all; "
          "experts.jsonl has each layer",
          kMost, report.moe.size()));
    }
    write(*files_->events, events_.step(done, record, report.moe));
  }
  has_logged_ = true;
  for (const MoeReport& layer : report.moe) {
    write(*files_->experts, experts_record(layer, done));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const MetricsRecord& layer : layers[i].records) write(*files_->layers[i].lines, layer);
  }
  log_.detail(progress_line(shown));
  console_.show(shown);
  shown_ = std::move(shown);
}

void TrainingLog::layers(const std::vector<LayerNorms>& layers, int64_t step) {
  if (!files_) return;
  for (const LayerNorms& layer : layers) {
    MetricsRecord record;
    record.add("step", step).add("layer", layer.layer).add("weight_norm", layer.weight);
    record.add("gradient_norm", layer.gradient).add("update_norm", layer.update);
    record.add("update_ratio", layer.update / layer.weight);
    write(*files_->norms, record);
  }
}

void TrainingLog::pulse(const Session& session, const std::string& activity) {
  if (!files_) return;
  console_.pulse([&](int64_t columns) {
    Progress now = shown_.value_or(Progress());
    now.is_measured = shown_.has_value();
    now.step = session.steps_done();
    now.total_steps = session.total_steps();
    now.activity = activity;
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - last_time_;
    const auto steps = static_cast<double>(now.step - last_step_);
    const bool is_in_evaluation = !activity.empty();  // whose time is not left out yet
    if (steps > 0 && !is_in_evaluation) {
      now.seconds_left = seconds_left(session, std::max(0.0, since.count() - left_out_s_) / steps);
    } else if (!shown_) {
      now.seconds_left = std::nan("");  // not known
    }
    return live_line(now, columns);
  });
}

void TrainingLog::evaluation(const Evaluation& evaluation, int64_t step) {
  leave_out(evaluation.seconds);
  ++num_evaluations_;
  evaluations_s_ += evaluation.seconds;
  if (!files_) return;
  MetricsRecord record;
  record.add("step", step).add("event", std::string("eval"));
  for (const Metric& metric : evaluation.metrics) {
    if (metric.kind == Metric::Kind::kCount) {
      record.add(metric.name, static_cast<int64_t>(std::llround(metric.value)));
    } else {
      record.add(metric.name, metric.value);
    }
  }
  record.add("samples", evaluation.samples);
  if (evaluation.router_agreement) record.add("router_agreement", *evaluation.router_agreement);
  if (const auto information = mean_mutual_information(evaluation.moe)) {
    record.add("moe_mutual_information", *information);
  }
  record.add("seconds", evaluation.seconds);
  write(files_->metrics, record);
  write(files_->table, record);
  if (files_->events) write(*files_->events, events_.evaluation(step, record));
  if (!evaluation.pictures.empty()) write(files_->pictures, sheet_png(evaluation.pictures, step));
  std::string line = fmt::format("step {}  evaluation:", step), counts;
  for (const Metric& metric : evaluation.metrics) {
    const bool is_count = metric.kind == Metric::Kind::kCount;
    (is_count ? counts : line) += is_count ? fmt::format("{} {}, ", to_text(metric), metric.label)
                                           : fmt::format(" {} {} ", metric.label, to_text(metric));
  }
  line = fmt::format("{} ({}, {}{})", line, counted(evaluation.samples, "sample"), counts,
                     human_seconds(evaluation.seconds));
  log_.detail(line);
  console_.print(line);
}

}  // namespace shoal
