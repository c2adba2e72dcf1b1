#pragma once

#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "parallel/checkpoint/checkpoint_files.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/save_plan.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/comm/communicator.h"
#include "runtime/files/file_system.h"
#include "runtime/module/state.h"

namespace shoal {

/// A run's progress when it is saved.
struct SaveInfo {
  int64_t step = 0;             ///< optimizer steps done
  int64_t samples = 0;          ///< the data cursor
  std::optional<double> score;  ///< score of an evaluation at this step; larger is better
};

/// The result of a save; equal on all ranks.
struct SaveOutcome {
  bool ok = false;
  int64_t step = 0;
  std::string path;   ///< path of the checkpoint
  std::string error;  ///< names the file, the system's text, bytes needed and free
  int64_t bytes = 0;  ///< size of all shards
  bool wrote = true;  ///< false if the checkpoint of this step existed already
};

/// Saves checkpoints in the background: one list of the state's tensors, each written once by one
/// of the ranks that hold it, whatever the number of ranks.
///
/// `begin` copies the state aside; a thread of each rank then writes its shards and reads them
/// back, without any collective; once all ranks have `written()`, which the step's flags show,
/// `commit` makes the checkpoint: rank 0 writes the manifest and renames. At most one save is in
/// flight. A failing file operation on any rank fails this save alone: its temporary folder is
/// removed, and training continues.
class CheckpointWriter {
 public:
  struct Options {
    std::string folder;  ///< `<run>/ckpt`
    int64_t keep_last = 2;
    int64_t keep_best = 1;
    std::optional<int64_t> resumed_step;  ///< of the checkpoint in `folder` resumed from
    std::optional<double> resumed_score;  ///< of that checkpoint
    std::string run_id;
    std::string recipe;                             ///< canonical text
    std::map<std::string, std::string> written_by;  ///< versions and topology
    Warn warn = [](const std::string&) {};          ///< called on rank 0
  };
  /// Rank 0 removes what interrupted saves left in the folder.
  CheckpointWriter(Options options, Communicator& world, FileSystem& files);
  CheckpointWriter(const CheckpointWriter&) = delete;
  /// Waits for the threads; a save in flight stays uncommitted.
  ~CheckpointWriter();

  /// Collective. Copies the state and starts to write; the state may change at once.
  /// A storage error comes out of `commit`. Throws Error (exit 31) if the ranks' lists of state do
  /// not fit together, TORCH_CHECK while a save is in flight.
  void begin(Stateful& state, const SaveInfo& info);
  bool in_flight() const { return pending_.has_value(); }
  /// True once `commit` will not have to wait for this rank. Not collective.
  bool written() const { return written_.load(std::memory_order_acquire); }
  /// Collective. Waits for this rank's shards, then makes the checkpoint or drops the save. Old
  /// checkpoints are removed in the background.
  SaveOutcome commit();
  /// Collective. Gives the checkpoint that was saved last, or that the run resumed from, a score;
  /// its content stays.
  SaveOutcome add_score(double score);
  /// Collective. begin and commit; the old checkpoints are gone on return.
  SaveOutcome save(Stateful& state, const SaveInfo& info);

 private:
  struct Pending {
    SaveInfo info;
    std::string temporary;  ///< empty: nothing is written
    std::string failure;
    bool already_there = false;
    std::vector<ManifestValue> values;
  };
  Options options_;
  Communicator& world_;
  FileSystem& files_;
  std::optional<Pending> pending_;
  std::optional<int64_t> last_step_;

  std::vector<std::string> list_hashes_;  ///< hash of each rank's list when plan_ was made
  std::vector<PlannedShard> plan_;
  std::vector<ShardLayout> layouts_;  ///< of the shards of plan_
  torch::Tensor staging_;             ///< the data of the own shards; kept from save to save

  std::thread writer_;
  std::thread cleaner_;      ///< rank 0
  std::string clean_error_;  ///< why removal stopped, or what it left behind; empty if it succeeded
  std::string last_clean_error_;
  std::atomic<bool> written_{true};
  std::vector<ShardReport> reports_;  ///< of the own shards
  std::string write_error_;

  void update_plan(const StateList& list);
  void require_equal_values(const std::vector<std::string>& hashes, const StateList& list);
  void lay_out(int64_t step);
  void prepare_folder();
  void stage(const StateList& list);
  void write_shards_in_background();
  Manifest make_manifest(const std::vector<std::string>& reports) const;
  std::string commit_on_root(const std::vector<std::string>& reports);
  void warn_on_failure(const char* consequence, const std::function<void()>& work) const;
  void clean_in_background();
  void join_cleaner();
  std::vector<size_t> own_shards() const;
  int64_t total_bytes() const;
};

/// Counts failed saves and ends the run after kMostFailedSaves failures in a row, or when the save
/// at the end fails.
class SaveFailures {
 public:
  static constexpr int64_t kMostFailedSaves = 3;
  /// Throws StorageError with the outcome's text when the run must end.
  void record(const SaveOutcome& outcome, bool is_final);
  /// Resets the count of failures in a row.
  void forget_row() { in_a_row_ = 0; }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
  int64_t in_a_row_ = 0;
};

}  // namespace shoal
