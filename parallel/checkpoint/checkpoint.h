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
#include "parallel/checkpoint/staging.h"
#include "parallel/checkpoint/state_list.h"
#include "parallel/comm/communicator.h"
#include "runtime/files/file_system.h"
#include "runtime/module/state.h"

namespace shoal {

/// The progress of a training that is saved with its state.
struct SaveInfo {
  int64_t step = 0;             ///< optimizer steps done
  int64_t samples = 0;          ///< samples read so far: where the data stream continues
  std::optional<double> score;  ///< score of an evaluation at this step; larger is better
};

/// The result of a save; equal on all ranks.
struct SaveOutcome {
  bool ok = false;
  int64_t step = 0;
  std::string path;   ///< path of the checkpoint
  std::string error;  ///< empty if ok; names the file, the system's text, bytes needed and free
  int64_t bytes = 0;  ///< size of all shards
  bool wrote = true;  ///< false if the checkpoint of this step existed already
};

/// Saves checkpoints while training continues. A checkpoint is a folder of shards (safetensors
/// files) and a manifest that lists the tensors with checksums; any number of ranks can read it.
/// Each tensor is written once, by one of the ranks that hold it.
///
/// A save has two halves. `begin` copies the state to host memory, from a GPU without waiting for
/// the copies; a thread of each rank then writes the rank's shards to a temporary folder and reads
/// them back, without collectives. Once `written()` is true on all ranks (StepControl exchanges
/// it), `commit` makes the checkpoint: rank 0 writes the manifest and renames the folder. At most
/// one save is in flight. A file error on any rank fails this save only: the temporary folder is
/// removed, and training continues.
class CheckpointWriter {
 public:
  struct Options {
    std::string folder;     ///< the run's folder of checkpoints, `<run>/ckpt`
    int64_t keep_last = 2;  ///< number of newest checkpoints that are kept
    int64_t keep_best = 1;  ///< number of checkpoints with the best scores that are kept too
    std::optional<int64_t> resumed_step;  ///< step the run resumed from, a checkpoint in `folder`
    std::optional<double> resumed_score;  ///< score of that checkpoint
    std::string run_id;
    std::string recipe;                             ///< the recipe (configuration), canonical text
    std::map<std::string, std::string> written_by;  ///< facts to record: versions, numbers of ranks
    Warn warn = [](const std::string&) {};          ///< receives warnings
    /// Throws if values that are now on the host are unspecified (Communicator::throw_if_failed).
    std::function<void()> throw_if_failed = [] {};
    /// Returns the host memory that this rank may take; decides whether saves use pinned memory.
    std::function<int64_t()> available_bytes = [] { return INT64_MAX; };
  };
  /// On rank 0 removes the temporary folders of interrupted saves. No communication.
  CheckpointWriter(Options options, Communicator& world, FileSystem& files);
  CheckpointWriter(const CheckpointWriter&) = delete;
  /// Waits for the threads. A save in flight is not committed.
  ~CheckpointWriter();

  /// Starts a save: copies the state, which may change as soon as this returns (tensors of a GPU by
  /// work that is queued behind the current stream's). Collective.
  /// `commit` reports storage errors. Throws Error (exit 31) if a value, or a tensor's dtype or
  /// shape, differs between ranks; TORCH_CHECK while a save is in flight.
  void begin(Stateful& state, const SaveInfo& info);
  bool in_flight() const { return pending_.has_value(); }
  /// True once this rank has ended writing or failed, so `commit` need not wait. Not collective.
  bool written() const { return written_.load(std::memory_order_acquire); }
  /// Ends the save in flight: waits for this rank's shards, then makes the checkpoint or gives the
  /// save up. Collective. Afterwards a thread of rank 0 removes old checkpoints. Throws what
  /// `throw_if_failed` throws; the checkpoint is then not made.
  SaveOutcome commit();
  /// Records an evaluation's score in the checkpoint last saved or resumed from. Collective.
  SaveOutcome add_score(double score);
  /// Calls begin and commit; old checkpoints are removed before it returns. Collective.
  SaveOutcome save(Stateful& state, const SaveInfo& info);

 private:
  struct Pending {
    SaveInfo info;
    std::string temporary;       ///< the temporary folder; empty: nothing is written
    std::string failure;         ///< why no folder could be made; empty if one was
    bool already_there = false;  ///< true if this step was saved before
    std::vector<ManifestValue> values;
  };
  Options options_;
  Communicator& world_;
  FileSystem& files_;
  std::optional<Pending> pending_;
  std::optional<int64_t> last_step_;

  std::vector<std::string> list_hashes_;  ///< hash of each rank's list of state when plan_ was made
  std::vector<PlannedShard> plan_;        ///< all shards; reused while the lists stay equal
  std::vector<ShardLayout> layouts_;      ///< layouts of the shards of plan_
  Staging staging_;                       ///< host copy of the data of this rank's shards

  std::thread writer_;
  std::thread cleaner_;      ///< removes old checkpoints; rank 0 only
  std::string clean_error_;  ///< why removal stopped, or what it left behind; empty if it succeeded
  std::string last_clean_error_;
  std::atomic<bool> written_{true};
  std::vector<ShardReport> reports_;  ///< checksums of this rank's shards
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

/// Ends the run after kMostFailedSaves failed saves in a row, or if the run's last save fails.
class SaveFailures {
 public:
  static constexpr int64_t kMostFailedSaves = 3;
  /// Records a save's outcome. `is_final`: the run's last. Throws StorageError if the run must end.
  void record(const SaveOutcome& outcome, bool is_final);
  /// Resets the failures in a row, so that the save in flight may fail before the run's last save.
  void forget_row() { in_a_row_ = 0; }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
  int64_t in_a_row_ = 0;
};

}  // namespace shoal
