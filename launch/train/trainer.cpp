#include "launch/train/trainer.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "runtime/base/text.h"

namespace shoal {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::optional<Recurrence> recurrence(const std::optional<Duration>& every, const StepScale& scale,
                                     std::chrono::steady_clock::time_point start) {
  if (!every) return std::nullopt;
  return Recurrence(*every, scale, start);
}

}  // namespace

Trainer::Trainer(const Parts& parts, CheckpointWriter::Options checkpoints)
    : recipe_(parts.recipe),
      session_(parts.session),
      valid_data_(parts.valid_data),
      world_(*parts.session.grid().world),
      log_(parts.log),
      signals_(parts.signals),
      writer_(std::move(checkpoints), world_, files_),
      training_log_(parts.folder, world_, parts.console, log_, parts.session.steps_done()),
      start_(Clock::now()),
      due_{recurrence(recipe_.evaluate.every, session_.scale(), start_),
           recurrence(recipe_.checkpoint.every, session_.scale(), start_)} {
  result_.first_step = session_.steps_done();
  saved_step_ = session_.steps_done();
}

TrainingResult Trainer::run() {
  bool stop = false;
  while (!stop && session_.steps_done() < session_.total_steps()) {
    const StepOutcome outcome = session_.step(requests());
    after_step(outcome);
    stop = outcome.agreed.wants_stop() || reached_stop_step();
    if (stop && outcome.agreed.stop_signal != 0) {
      log_.info(fmt::format("signal {} ({}): saving, then leaving", outcome.agreed.stop_signal,
                            strsignal(static_cast<int>(outcome.agreed.stop_signal))));
    }
  }
  finish();
  const bool is_complete = session_.steps_done() >= session_.total_steps();
  result_.code = is_complete ? ExitCode::kOk : ExitCode::kPreempted;
  result_.last_step = session_.steps_done();
  result_.skipped_steps = session_.skipped_steps();
  result_.failed_saves = failures_.total();
  result_.seconds = seconds_since(start_);
  return result_;
}

// What this rank asks of the others. Clocks differ between ranks, so only rank 0's counts.
StepFlags Trainer::requests() {
  StepFlags own;
  own.stop_signal = signals_.caught();
  own.written_step = writer_.in_flight() && writer_.written() ? begun_step_ : saved_step_;
  if (world_.rank() != 0) return own;
  const auto now = Clock::now();
  const std::optional<Duration>& stop_after = recipe_.run.stop_after;
  own.stop = stop_after && stop_after->is_time() && seconds_since(start_) >= stop_after->value();
  own.evaluate = due_.evaluate && due_.evaluate->due_by_time(now);
  own.save = due_.save && due_.save->due_by_time(now);
  return own;
}

bool Trainer::reached_stop_step() const {
  const std::optional<Duration>& stop_after = recipe_.run.stop_after;
  return stop_after && !stop_after->is_time() &&
         session_.steps_done() >= result_.first_step + to_steps(*stop_after, session_.scale());
}

void Trainer::after_step(const StepOutcome& outcome) {
  training_log_.count_data_wait(outcome.data_wait_seconds);
  const bool is_last = outcome.step == session_.total_steps();
  if (is_last || falls_on(recipe_.train.log_every, outcome.step, session_.scale())) {
    result_.report = reduce(outcome, world_);
    training_log_.step(outcome, *result_.report, session_);
  }
  if (!outcome.applied) report_skipped(outcome);
  if (writer_.in_flight() && outcome.agreed.written_step == begun_step_) commit_save(false);
  // Before a save, so that the checkpoint has a score; the last step is always evaluated.
  if (outcome.agreed.evaluate ||
      (due_.evaluate && (is_last || due_.evaluate->due_at(outcome.step)))) {
    evaluate_now();
  }
  if (outcome.agreed.save || (due_.save && due_.save->due_at(outcome.step))) begin_save();
}

void Trainer::report_skipped(const StepOutcome& outcome) {
  log_.warn(fmt::format("step {} skipped on all ranks: the gradient of {} is not finite",
                        outcome.step, outcome.bad_tensor));
  if (session_.nonfinite_in_row() < recipe_.train.max_nonfinite_steps) return;
  if (writer_.in_flight()) commit_save(false);
  // The weights are still those of this step, and steps are exact: none saved since can go on.
  const int64_t last_applied = session_.steps_done() - session_.nonfinite_in_row();
  throw Error(ExitCode::kNumeric,
              fmt::format("{} in a row had gradients that are not finite, the last of {}",
                          counted(session_.nonfinite_in_row(), "step"), outcome.bad_tensor),
              last_applied == 0
                  ? std::string("no step has changed a weight yet: look at model.init_from and the "
                                "data")
                  : fmt::format("lower optimizer.lr or set train.clip_norm, and start anew or "
                                "resume from a checkpoint before step {} (move later ones away, "
                                "they lead here again); train.max_nonfinite_steps allows more",
                                last_applied));
}

void Trainer::evaluate_now() {
  result_.evaluation = evaluate({session_.task(), recipe_, valid_data_, session_.grid()},
                                session_.steps_done(), &agreement_);
  evaluated_step_ = session_.steps_done();
  training_log_.evaluation(*result_.evaluation, evaluated_step_);
  if (due_.evaluate) due_.evaluate->restart(Clock::now());
}

void Trainer::begin_save() {
  if (writer_.in_flight()) commit_save(false);  // leaves its own time out
  const auto begin = Clock::now();
  SaveInfo info{session_.steps_done(), session_.samples_done(), std::nullopt};
  if (evaluated_step_ == info.step) info.score = result_.evaluation->top1;
  begun_step_ = info.step;
  writer_.begin(session_, info);
  session_.throw_if_failed();
  if (due_.save) due_.save->restart(Clock::now());
  training_log_.leave_out(seconds_since(begin));
}

void Trainer::commit_save(bool is_final) {
  const auto begin = Clock::now();
  const SaveOutcome outcome = writer_.commit();
  if (outcome.ok) {
    saved_step_ = outcome.step;
    log_.detail(fmt::format("saved {} ({})", outcome.path,
                            human_bytes(static_cast<double>(outcome.bytes))));
  }
  failures_.record(outcome, is_final);
  if (!outcome.ok) {
    log_.warn(fmt::format("[E21] step {} was not saved, training goes on: {}", outcome.step,
                          outcome.error));
  }
  training_log_.leave_out(seconds_since(begin));
}

void Trainer::finish() {
  const int64_t step = session_.steps_done();
  if (step > result_.first_step && begun_step_ != step) begin_save();
  if (writer_.in_flight()) commit_save(true);
}

}  // namespace shoal
