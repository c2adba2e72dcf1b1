#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/evaluate/evaluation.h"
#include "launch/job/console.h"
#include "launch/pages/sample_sheet.h"
#include "launch/runs/run_folder.h"
#include "launch/step/session.h"
#include "launch/train/tensorboard_events.h"
#include "runtime/base/log.h"
#include "runtime/records/event_file.h"
#include "runtime/records/layer_log.h"
#include "runtime/records/metrics.h"

namespace shoal {

/// Writes a training's records, on rank 0: metrics.jsonl, metrics.csv, experts.jsonl, layers.jsonl,
/// the files of layer logs (token gates, sparse layers), pictures.png, TensorBoard's events, the
/// console and this rank's log. A key whose number is not known is left out, such as all_to_all_ms
/// on GPUs. Calls do nothing on other ranks.
class TrainingLog {
 public:
  struct Start {
    const RunFolder& folder;
    Communicator& world;
    int64_t first_step = 0;            ///< steps done before
    std::vector<std::string> metrics;  ///< names of the task's metrics, columns of metrics.csv
    LayerLogs layers = {};             ///< of the session's model
    bool has_tensorboard = false;      ///< true if tb/ is written
    /// Rate of all ranks together at peak FLOP/s if no token is dropped. Unset: no MFU is logged.
    std::optional<double> samples_per_second_at_peak = {};
    std::optional<Duration> evaluates_every = {};  ///< for the time left; unset: never
    bool has_experts = true;                       ///< false: no experts.jsonl, as for dense models
    bool has_norms = false;                        ///< true: layers() is called, for layers.jsonl
    std::optional<Duration> clock = {};            ///< train.duration if it is a time
  };
  /// Removes records of steps after start.first_step from the files. While the disk is full, lines
  /// are kept in memory, with one warning a file. Throws StorageError if a file cannot be opened.
  TrainingLog(const Start& start, Console& console, Log& log);

  /// Writes a logged step; rates are over the time since the last call.
  void step(const StepOutcome& outcome, const StepReport& report, const Session& session);
  void evaluation(const Evaluation& evaluation, int64_t step);
  /// Writes the norms of a step's layers.
  void layers(const std::vector<LayerNorms>& layers, int64_t step);
  /// Updates the progress line on a terminal. `activity`: progress of an evaluation; "": none runs.
  void pulse(const Session& session, const std::string& activity = "");
  /// Call at the end of a training. Throws StorageError if lines are lost because the disk is full.
  void finish();
  /// Excludes the time of an evaluation or a save from the rates.
  void leave_out(double seconds) { left_out_s_ += seconds; }
  /// Excludes an evaluation's waiting for exchanges from all_to_all_ms.
  void leave_out_wait(double seconds) { last_wait_s_ += seconds; }
  /// Adds the time that a step waited for data, whether the step is logged or not.
  void count_data_wait(double seconds) { data_wait_s_ += seconds; }

 private:
  struct LayerFile {
    std::shared_ptr<const LayerLog> log;
    std::optional<JsonLines> lines;
  };
  struct Files {
    JsonLines metrics;
    std::optional<JsonLines> experts;
    std::deque<LayerFile> layers;
    CsvTable table;
    SheetFile pictures;
    std::optional<EventFile> events;
    std::optional<JsonLines> norms = {};
  };
  Progress progress(const StepOutcome& outcome, const StepReport& report, const Session& session);
  double seconds_left(const Session& session, double seconds_a_step) const;
  /// Warns, once, if the training will take more than twice its train.duration by the clock.
  void watch_clock(double seconds, double steps, const Session& session);
  template <class File, class Record>
  void write(File& file, const Record& record);

  Communicator& world_;
  Console& console_;
  Log& log_;
  std::set<const void*> waiting_files_;  ///< with lines that a full disk refuses
  std::optional<Files> files_;
  TensorBoardEvents events_;
  bool has_logged_ = false;  ///< true after the first logged step
  std::chrono::steady_clock::time_point last_time_;
  std::optional<Progress> shown_;       ///< the last logged step
  std::optional<double> peak_samples_;  ///< Start::samples_per_second_at_peak
  const std::optional<Duration> evaluates_every_;
  std::optional<Duration> clock_;  ///< Start::clock, until the warning
  const std::chrono::steady_clock::time_point start_;
  const int64_t first_step_;
  double watched_s_ = 0.0, watched_steps_ = 0.0;  ///< since clock_ was last compared
  int64_t last_step_, num_evaluations_ = 0;
  double evaluations_s_ = 0.0;  ///< time of all evaluations
  double last_wait_s_ = 0.0;
  double left_out_s_ = 0.0;
  double data_wait_s_ = 0.0;
};

/// Largest load of an expert over the mean; 0 if no token was routed.
double max_over_mean(const MoeReport& layer);

/// Table of load, entropies and drops of all MoE layers, for the console; memory units (key-value
/// tables of Nexus layers, paper: OneSparse) are counted separately.
std::string expert_table(const std::vector<MoeReport>& layers);

}  // namespace shoal
