#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/random/random_stream.h"

namespace shoal::testing {

/// When the work of a FakeNccl's streams is done. Any schedule is one that GPUs may follow.
struct FakeSchedule {
  /// 0: each work as late as possible, when a host waits for it or for work behind it. Other seeds:
  /// at random times, and in a random order where several may be next.
  uint64_t seed = 0;
  /// False: a GPU runs one transfer at a time, in the order of the launches, as where a transfer
  /// takes all the room. True: transfers of several streams run side by side and start in the order
  /// of the launches (NCCL_LAUNCH_ORDER_IMPLICIT).
  bool overlaps = false;
};

/// Runs `body` with random schedules, whose seeds are printed and follow --gtest_random_seed: 5, or
/// as many as the environment variable STREAM_SCHEDULES says.
void for_schedules(const std::function<void(const FakeSchedule& schedule)>& body);

struct FakeGpu;
struct FakeStream;
struct FakeWork;
using WorkPtr = std::shared_ptr<FakeWork>;

/// One rank's side of a transfer: of a collective, of a send or of a receive.
struct FakeSide {
  std::string what = {};  ///< for collectives equal on all ranks, or the call fails
  const void* in = nullptr;
  void* out = nullptr;
  size_t bytes = 0;
  FakeGpu* gpu = nullptr;  ///< that has to launch it
  WorkPtr work = nullptr;  ///< null: not launched yet
};

/// A transfer. The data move when the work of all sides has started.
struct FakeTransfer {
  std::vector<FakeSide> sides;
  /// Moves the data; returns false if the sides do not fit.
  std::function<bool(std::vector<FakeSide>& sides)> move;
};
using TransferPtr = std::shared_ptr<FakeTransfer>;

/// What is queued on a stream: a copy, a wait for an event, or sides of transfers.
struct FakeWork {
  std::string what;
  FakeStream* stream = nullptr;
  std::function<void()> copy;
  WorkPtr event;                       ///< waits for this work
  std::vector<TransferPtr> transfers;  ///< not done yet
  std::function<void()> on_bad_sides;  ///< fails the communicator
  bool is_launch = false;              ///< has transfers, and a place in its GPU's launches
  bool is_started = false, is_done = false;
};

/// Work in the order in which it is done. An event is the last work before it; null: none.
struct FakeStream {
  std::string name;
  FakeGpu* gpu = nullptr;
  std::deque<WorkPtr> queue;
};

/// One rank's GPU.
struct FakeGpu {
  std::string name;
  std::map<std::string, FakeStream> streams;
  std::deque<WorkPtr> launches;  ///< transfers that are not done, over all streams
  std::thread::id host;          ///< the thread that drives it
  WorkPtr host_waits;            ///< what that thread waits for; null: it runs
};

/// The streams of all GPUs of a job. All methods but the constructor are called with `mutex` held.
///
/// Nothing runs by itself: a host that waits for work does the work of all GPUs, one at a time, as
/// the schedule says. A stream does its work in order. If work can never be done, because the works
/// before it on two ranks wait for each other, the job fails at once, with a list of the calls.
class FakeStreams {
 public:
  explicit FakeStreams(const FakeSchedule& schedule)
      : schedule_(schedule), draws_(Stream{.seed = schedule.seed}) {}

  std::mutex mutex;
  std::condition_variable changed;

  FakeGpu& add_gpu();
  void queue(FakeStream& stream, const WorkPtr& work);
  /// Blocks the calling host until the work is done. Throws std::runtime_error if it never will be.
  void wait(std::unique_lock<std::mutex>& lock, FakeGpu& gpu, const WorkPtr& work);
  /// Does one work at most. Throws as wait() does.
  bool is_done(FakeGpu& gpu, const WorkPtr& work);
  /// Blocks the calling host until another one has done something; throws after a long time.
  void wait_for_others(std::unique_lock<std::mutex>& lock, const std::string& what);
  /// Ends the work as if it were done, as an aborted kernel ends.
  void drop(const WorkPtr& work);
  /// Why nothing can go on; empty: all is well.
  const std::string& failure() const { return failure_; }

 private:
  /// Does a work that `wanted` needs. False: it needs a host that runs.
  bool step(const WorkPtr& wanted);
  bool is_next(const FakeWork& work) const;
  void run(const WorkPtr& work);
  void finish(const WorkPtr& work);
  std::vector<WorkPtr> needs(const FakeWork& work) const;
  WorkPtr find_next(const WorkPtr& work, std::vector<WorkPtr>& path, std::set<FakeWork*>& seen);
  std::vector<WorkPtr> all_next() const;
  /// A random number below `count`.
  size_t draw(size_t count);
  void fail(const std::string& why);
  void check() const;

  FakeSchedule schedule_;
  ScalarDraws draws_;
  uint64_t num_draws_ = 0;
  std::deque<FakeGpu> gpus_;
  std::string failure_;
};

}  // namespace shoal::testing
