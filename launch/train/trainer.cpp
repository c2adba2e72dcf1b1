#include "launch/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "launch/model/score_rule.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_reader.h"
#include "parallel/comm/on_rank_zero.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// The best score of the checkpoints that are there. Collective.
std::optional<double> best_score(const std::string& checkpoints, Communicator& world, Log& log) {
  const std::string text = on_rank_zero(world, [&] {
    const std::optional<std::string> best =
        find_best(checkpoints, [&log](const std::string& line) { log.warn(line); });
    const std::optional<double> score =
        best ? CheckpointReader(*best).manifest().score : std::nullopt;
    return score ? fmt::format("{}", *score) : std::string();
  });
  return text.empty() ? std::nullopt : std::optional(std::stod(text));
}

std::vector<std::string> metric_names(const Task& task, const EvaluateOptions& options) {
  std::vector<std::string> names;
  for (const Metric& metric : evaluated_metrics(task, options)) names.push_back(metric.name);
  return names;
}

/// The score as checkpoints keep it, larger is better: negated if the metric is to be minimised.
double score_of(const Evaluation& evaluation, const ScoreRule& rule) {
  const double value = evaluation.value(rule.metric);
  return rule.higher_is_better ? value : -value;
}

/// True if there is anything left to log.
bool has_work(const Trainer::Parts& parts) {
  return parts.evaluates_first || !parts.session.is_finished();
}

/// Why train.patience ended a training.
std::string patience_note(const Session& session, const ScoreRule& rule) {
  const ScoreTrend& scores = session.scores();
  return fmt::format(
      "train.patience ended the training at step {} of {}: {} without a better {} than {:.4f} of "
      "step {}",
      session.steps_done(), session.total_steps(), counted(scores.without_better, "evaluation"),
      rule.metric, rule.higher_is_better ? scores.best : -scores.best, scores.best_step);
}

}  // namespace

Trainer::Trainer(const Parts& parts, CheckpointWriter::Options checkpoints)
    : recipe_(parts.recipe),
      session_(parts.session),
      valid_data_(parts.valid_data),
      sets_(parts.sets),
      score_rule_(score_rule(parts.session.task(), recipe_.evaluate)),
      world_(*parts.session.grid().world),
      log_(parts.log),
      signals_(parts.signals),
      start_(Clock::now()),
      evaluations_(recipe_.evaluate.every, session_.scale(), start_),
      saves_(recipe_.checkpoint.every, session_.scale(), start_),
      logs_(recipe_.train.log_every, session_.scale(), start_),
      layer_logs_(recipe_.run.log_layers, session_.scale(), start_),
      owes_score_(checkpoints.resumed_step && !checkpoints.resumed_score &&
                  evaluates_at(*checkpoints.resumed_step) && has_work(parts)),
      owes_evaluation_(parts.evaluates_first || owes_score_),
      writer_(std::move(checkpoints), world_, files_),
      training_log_(
          {parts.folder, world_, parts.session.steps_done(),
           metric_names(parts.session.task(), recipe_.evaluate),
           layer_logs_of(parts.session.model()), recipe_.run.tensorboard && has_work(parts),
           parts.mfu ? std::optional(parts.mfu->samples_per_second_at_peak) : std::nullopt,
           recipe_.evaluate.every, !parts.session.model().stages.empty(),
           recipe_.run.log_layers.has_value(), parts.clock},
          parts.console, log_),
      mfu_(parts.mfu) {
  if (mfu_) computed_.emplace(mfu_->work, world_);
  training_log_.leave_out_wait(session_.exchange_wait_seconds().value_or(0.0));  // a trial's
  result_.first_step = session_.steps_done();
  result_.samples_per_step = session_.scale().samples_per_step;
  result_.unit = session_.task().unit();
  saved_step_ = session_.steps_done();
  best_score_ = best_score(parts.folder.checkpoints(), world_, log_);
}

TrainingResult Trainer::run() {
  if (owes_evaluation_) make_up_evaluation();
  bool stop = is_interrupted_;
  while (!stop && !session_.is_finished()) {
    const StepOutcome outcome = session_.step(requests());
    after_step(outcome);
    stop = outcome.agreed.wants_stop() || is_interrupted_ || reached_stop_step();
    if (stop && outcome.agreed.stop_signal != 0) {
      log_.info(fmt::format("stopped by {}: saving, then leaving",
                            StopSignals::name_of(static_cast<int>(outcome.agreed.stop_signal))));
    }
  }
  finish();
  const bool is_complete = session_.is_finished() && !is_interrupted_;
  result_.code = !is_complete    ? ExitCode::kPreempted
                 : ends_finite() ? ExitCode::kOk
                                 : ExitCode::kNumeric;
  result_.last_step = session_.steps_done();
  result_.total_steps = session_.total_steps();
  if (is_complete && result_.last_step < result_.total_steps) {
    result_.notes.push_back(patience_note(session_, score_rule_));
    log_.info(result_.notes.back());
  }
  result_.skipped_steps = session_.skipped_steps();
  result_.failed_saves = failures_.total();
  result_.seconds = seconds_since(start_);
  const double seconds = result_.seconds - result_.evaluation_seconds;
  if (computed_) computed_->take_share();
  if (mfu_ && result_.last_step > result_.first_step && seconds > 0) {
    const auto samples_per_step = static_cast<double>(result_.samples_per_step);
    result_.mfu =
        computed_->steps() * samples_per_step / seconds / mfu_->samples_per_second_at_peak;
  }
  return result_;
}

std::string Trainer::place() const {
  if (pause_ != nullptr) return fmt::format("{} at step {}", pause_, session_.steps_done());
  return fmt::format("step {}, {}", session_.steps_done() + 1, session_.phase());
}

// What this rank asks of the others. Clocks differ between ranks, so only rank 0's counts.
StepFlags Trainer::requests() {
  StepFlags own = stop_requests();
  own.written_step = writer_.in_flight() && writer_.written() ? begun_step_ : saved_step_;
  own.log_layers = layer_logs_.due_at(session_.steps_done() + 1);
  if (world_.rank() != 0) return own;
  const auto now = Clock::now();
  own.evaluate = evaluations_.due_by_time(now);
  own.save = saves_.due_by_time(now);
  own.log = logs_.due_by_time(now);
  own.log_layers = own.log_layers || layer_logs_.due_by_time(now);
  return own;
}

StepFlags Trainer::stop_requests() const {
  StepFlags own;
  own.stop_signal = signals_.caught();
  const std::optional<Duration>& stop_after = recipe_.run.stop_after;
  own.stop = world_.rank() == 0 && stop_after && stop_after->is_time() &&
             seconds_since(start_) >= stop_after->value();
  return own;
}

/// True if an evaluation is due at this step; the last one is always evaluated, if any is.
bool Trainer::evaluates_at(int64_t step) const {
  return recipe_.evaluate.every && (step == session_.total_steps() || evaluations_.due_at(step));
}

bool Trainer::reached_stop_step() const {
  const std::optional<Duration>& stop_after = recipe_.run.stop_after;
  return stop_after && !stop_after->is_time() &&
         session_.steps_done() >= result_.first_step + to_steps(*stop_after, session_.scale());
}

void Trainer::after_step(const StepOutcome& outcome) {
  training_log_.count_data_wait(outcome.data_wait_seconds);
  if (computed_) computed_->add(outcome.moe);
  const int64_t step = session_.steps_done();
  const bool is_last = step == session_.total_steps();
  const bool is_logged = is_last || outcome.agreed.log || logs_.due_at(step);
  if (is_logged) {
    log_step(outcome);
  } else {
    training_log_.pulse(session_);
  }
  if (outcome.agreed.log_layers && outcome.applied) {
    training_log_.layers(outcome.layers, step);
    layer_logs_.restart(Clock::now());
  }
  if (!outcome.applied) report_skipped(outcome);
  if (writer_.in_flight() && outcome.agreed.written_step == begun_step_) commit_save(false);
  if (outcome.agreed.wants_stop() && !is_last) return;  // whoever stops the run may not wait long
  // Before a save, so that the checkpoint has a score.
  const bool evaluates = outcome.agreed.evaluate || evaluates_at(step);
  const bool is_best_so_far = evaluates && evaluate_now();
  if (!is_logged && session_.is_out_of_patience()) log_step(outcome);  // the last one
  if (outcome.agreed.save || saves_.due_at(step) || is_best_so_far) begin_save();
}

void Trainer::log_step(const StepOutcome& outcome) {
  result_.report = reduce(outcome, world_);
  if (computed_) result_.report->computed_share = computed_->take_share();
  training_log_.step(outcome, *result_.report, session_);
  warn_of_nonfinite("loss", result_.report->loss);
  logs_.restart(Clock::now());
}

void Trainer::report_skipped(const StepOutcome& outcome) {
  log_.warn(fmt::format("step {} skipped on all ranks: {} is not finite", session_.steps_done(),
                        outcome.not_finite));
  if (session_.nonfinite_in_row() < recipe_.train.max_nonfinite_steps) return;
  if (writer_.in_flight()) commit_save(false);
  // The weights are still those of this step, and steps are exact: none saved since can go on.
  const int64_t last_applied = session_.steps_done() - session_.nonfinite_in_row();
  throw Error(ExitCode::kNumeric,
              fmt::format("{} in a row had a loss or gradients that are not finite, the last {}",
                          counted(session_.nonfinite_in_row(), "step"), outcome.not_finite),
              last_applied == 0
                  ? std::string("no step has changed a weight yet: look at model.init_from and the "
                                "data")
                  : fmt::format("lower optimizer.lr or set train.clip_norm, and start anew or "
                                "resume from a checkpoint before step {} (move later ones away, "
                                "they lead here again); train.max_nonfinite_steps allows more",
                                last_applied));
}

/// Returns true if its score is the best so far, and checkpoints are kept by score.
bool Trainer::evaluate_now(bool is_logged) {
  constexpr int64_t kMostPictures = 6;
  const Interrupted interrupted = [this] {
    is_interrupted_ = session_.agree(stop_requests()).wants_stop();
    return is_interrupted_;
  };
  pause_ = "evaluation";
  const auto lent_weights = session_.lend_weights();
  const auto begin = Clock::now();
  const double waited = session_.exchange_wait_seconds().value_or(0.0);
  const auto show = [this](const char* what, int64_t done, int64_t total) {
    training_log_.pulse(session_, share_done(what, done, total));
  };
  const std::optional<Evaluation> evaluation =
      evaluate({session_.task(), recipe_, valid_data_, session_.grid(), &session_.train_data(),
                kMostPictures, show, sets_},
               session_.steps_done(), &agreement_, interrupted);
  result_.evaluation_seconds += seconds_since(begin);
  training_log_.leave_out_wait(session_.exchange_wait_seconds().value_or(0.0) - waited);
  pause_ = nullptr;
  if (!evaluation) {
    log_.info(fmt::format("step {}: evaluation interrupted by a stop", session_.steps_done()));
    return false;
  }
  result_.evaluation = evaluation;
  evaluated_step_ = session_.steps_done();
  if (is_logged) training_log_.evaluation(*evaluation, evaluated_step_);
  for (const Metric& metric : evaluation->metrics) {
    warn_of_nonfinite("validation " + metric.label, metric.value);
  }
  evaluations_.restart(Clock::now());
  const double score = score_of(*evaluation, score_rule_);
  session_.add_score(score);
  return is_best(score);
}

// Before it is logged, the checkpoint gets the score: a later start knows by it that all is done,
// and records the evaluation no second time.
void Trainer::make_up_evaluation() {
  evaluate_now(/*is_logged=*/false);
  if (!owes_score_ || evaluated_step_ != session_.steps_done()) return;
  const double score = score_of(*result_.evaluation, score_rule_);
  const SaveOutcome outcome = writer_.add_score(score);
  if (outcome.ok && is_best(score)) best_score_ = score;
  if (!outcome.ok) {
    log_.warn(
        fmt::format("[E21] the checkpoint of step {} did not get its score, training goes on: {}",
                    outcome.step, outcome.error));
  }
  training_log_.evaluation(*result_.evaluation, evaluated_step_);
}

void Trainer::warn_of_nonfinite(const std::string& what, double value) {
  if (std::isfinite(value)) return;
  const std::string note = fmt::format("step {}: {} is not finite", session_.steps_done(), what);
  log_.warn(note);
  result_.notes.push_back(note);
}

bool Trainer::ends_finite() const {
  const auto is_finite = [](const Metric& metric) { return std::isfinite(metric.value); };
  if (result_.report && !std::isfinite(result_.report->loss)) return false;
  return !result_.evaluation || std::ranges::all_of(result_.evaluation->metrics, is_finite);
}

bool Trainer::is_best(double score) const {
  return recipe_.checkpoint.keep_best > 0 && std::isfinite(score) &&
         (!best_score_ || score > *best_score_);
}

void Trainer::begin_save() {
  if (writer_.in_flight()) commit_save(false);  // leaves its own time out
  const auto begin = Clock::now();
  SaveInfo info{session_.steps_done(), session_.samples_done(), std::nullopt};
  if (evaluated_step_ == info.step) {
    info.score = score_of(*result_.evaluation, score_rule_);
  }
  begun_score_ = info.score;
  begun_step_ = info.step;
  pause_ = "copy for a checkpoint";
  writer_.begin(session_, info);
  pause_ = nullptr;
  saves_.restart(Clock::now());
  training_log_.leave_out(seconds_since(begin));
}

void Trainer::commit_save(bool is_final) {
  const auto begin = Clock::now();
  pause_ = "writing of a checkpoint";
  SaveOutcome outcome = writer_.commit();
  // Else all steps since the checkpoint before would be lost.
  for (int64_t tries = 1; is_final && !outcome.ok && has_grace(begin); ++tries) {
    log_.warn(fmt::format("[E21] step {} was not saved, trying again while run.grace lasts: {}",
                          outcome.step, outcome.error));
    std::this_thread::sleep_for(std::chrono::seconds(tries));
    begin_save();
    outcome = writer_.commit();
  }
  pause_ = nullptr;
  record_save(outcome, is_final);
  training_log_.leave_out(seconds_since(begin));
}

void Trainer::record_save(const SaveOutcome& outcome, bool is_final) {
  if (outcome.ok) {
    saved_step_ = outcome.step;
    if (begun_score_ && is_best(*begun_score_)) best_score_ = begun_score_;
    log_.detail(fmt::format("saved {} ({})", outcome.path, human_bytes(outcome.bytes)));
  }
  failures_.record(outcome, is_final);
  if (!outcome.ok) {
    log_.warn(fmt::format("[E21] step {} was not saved, training goes on: {}", outcome.step,
                          outcome.error));
  }
}

/// The grace begins with the signal that stops the run, or else with the last save. Collective.
bool Trainer::has_grace(Clock::time_point begin) {
  StepFlags own;
  own.stop = signals_.caught() != 0 ? signals_.is_grace_over()
                                    : seconds_since(begin) > recipe_.run.grace.value();
  return !session_.agree(own).stop;
}

void Trainer::finish() {
  const int64_t step = session_.steps_done();
  if (step > result_.first_step && begun_step_ != step) {
    failures_.forget_row();  // the save in flight may fail: the last one is still tried
    begin_save();
  }
  if (writer_.in_flight()) commit_save(true);
  training_log_.finish();
}

}  // namespace shoal
