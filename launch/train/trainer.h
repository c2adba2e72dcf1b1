#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/evaluate/evaluation.h"
#include "launch/job/console.h"
#include "launch/recipe/recipe.h"
#include "launch/runs/run_folder.h"
#include "launch/step/session.h"
#include "launch/train/mfu.h"
#include "launch/train/recurrence.h"
#include "launch/train/training_log.h"
#include "parallel/checkpoint/checkpoint.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/signals.h"
#include "runtime/files/file_system.h"

namespace shoal {

/// Results of a run, for its summary.
struct TrainingResult {
  ExitCode code = ExitCode::kOk;
  int64_t first_step = 0, last_step = 0;
  int64_t total_steps = 0;  ///< end of train.duration
  int64_t samples_per_step = 0;
  RateUnit unit = {"img"};         ///< the task's
  std::optional<double> mfu = {};  ///< over the training, with saves but without evaluations
  int64_t skipped_steps = 0;  ///< with gradients that were not finite, since the run's first step
  int64_t failed_saves = 0;
  double seconds = 0.0;                  ///< time of training, evaluations and saves included
  double evaluation_seconds = 0.0;       ///< time of evaluations
  std::optional<StepReport> report;      ///< of the last logged step
  std::optional<Evaluation> evaluation;  ///< the last one
  std::vector<std::string> notes;        ///< problems that did not end the run
};

/// Runs a session (a training in memory) with evaluations, saves and logs to its end or a stop.
class Trainer {
 public:
  /// What the references refer to must outlive the trainer.
  struct Parts {
    const Recipe& recipe;
    Session& session;
    const OpenSplit& valid_data;
    const RunFolder& folder;
    Console& console;
    Log& log;
    const StopSignals& signals;
    bool evaluates_first = false;        ///< true if a finished run lacks its last evaluation
    std::optional<MfuBasis> mfu = {};    ///< default: not reported
    std::span<const OpenSet> sets = {};  ///< of evaluate.sets
    std::optional<Duration> clock = {};  ///< train.duration if it is a time
  };
  /// Collective. The session has been resumed or initialised.
  Trainer(const Parts& parts, CheckpointWriter::Options checkpoints);

  /// Collective. Throws Error (exit 30) after too many non-finite steps in a row, StorageError when
  /// saves keep failing.
  TrainingResult run();
  /// Returns what runs, for error messages: `step 7, backward pass`.
  std::string place() const;

 private:
  using Clock = std::chrono::steady_clock;

  StepFlags requests();             ///< of this rank in a step: to stop, evaluate, save or log
  StepFlags stop_requests() const;  ///< a caught signal; on rank 0 the end of run.stop_after
  void after_step(const StepOutcome& outcome);
  void log_step(const StepOutcome& outcome);
  void report_skipped(const StepOutcome& outcome);
  bool evaluate_now(bool is_logged = true);
  void make_up_evaluation();  ///< runs the owed evaluation before the first step
  void warn_of_nonfinite(const std::string& what, double value);
  bool ends_finite() const;
  bool is_best(double score) const;
  void begin_save();
  void commit_save(bool is_final);
  void record_save(const SaveOutcome& outcome, bool is_final);
  bool has_grace(Clock::time_point begin);  ///< run.grace allows another try to save; collective
  void finish();
  bool evaluates_at(int64_t step) const;
  bool reached_stop_step() const;

  const Recipe& recipe_;
  Session& session_;
  const OpenSplit& valid_data_;
  const std::span<const OpenSet> sets_;
  const ScoreRule score_rule_;
  Communicator& world_;
  Log& log_;
  const StopSignals& signals_;
  Clock::time_point start_;
  Recurrence evaluations_, saves_, logs_, layer_logs_;
  const bool owes_score_;  ///< the resumed checkpoint lacks the score of an evaluation due there
  const bool owes_evaluation_;  ///< owes_score_ or Parts::evaluates_first
  PosixFileSystem files_;
  CheckpointWriter writer_;
  SaveFailures failures_;
  TrainingLog training_log_;
  const std::optional<MfuBasis> mfu_;
  std::optional<ComputedWork> computed_;  ///< unset without mfu_
  RouterAgreement agreement_;  ///< compares tokens' first experts with the previous evaluation's
  TrainingResult result_;
  const char* pause_ = nullptr;  ///< the evaluation or save that runs between steps, or null
  int64_t evaluated_step_ = -1;  ///< the step of result_.evaluation
  int64_t begun_step_ = -1;      ///< the step of the newest save that was begun
  int64_t saved_step_ = 0;       ///< the step of the newest save that is on disk
  bool is_interrupted_ = false;  ///< true if a stop was agreed on during an evaluation
  std::optional<double> best_score_, begun_score_;  ///< best on disk; that of the newest begun save
};

}  // namespace shoal
