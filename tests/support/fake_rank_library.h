// What the functions of a FakeRank do: NCCL's communicators, groups and transfers, and CUDA's
// events, over FakeStreams.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_nccl.h"

namespace shoal::testing {

using Sides = std::vector<FakeSide>;

/// A side of a call, before it is launched.
struct PlannedSide {
  FakeSide side;
  std::array<int64_t, 3> key{};  ///< which transfer of the communicator
  size_t index = 0;              ///< of the side in the transfer
  std::vector<int> ranks;        ///< of all its sides
  std::function<bool(Sides&)> move;
};

/// A communicator over all its ranks.
struct FakeGroup {
  int number = 0;
  std::vector<FakeGpu*> gpus;  ///< by rank; null: has not joined
  size_t num_joined = 0;
  NcclResult error = NcclResult::kSuccess;
  std::map<std::array<int64_t, 3>, TransferPtr> transfers;  ///< some ranks have launched
  std::vector<WorkPtr> works;

  /// A call of ncclCommSplit: what ranks gave, by rank, and what they get.
  struct Split {
    std::vector<std::pair<int, int>> color_and_key;
    std::vector<std::shared_ptr<FakeGroup>> groups;
    size_t num_called = 0;
  };
  std::map<int64_t, Split> splits;
};

/// A communicator as one rank holds it.
struct FakeComm {
  std::shared_ptr<FakeGroup> group;
  int rank = 0;
  int64_t num_collectives = 0, num_splits = 0;
  std::map<std::pair<int, int>, int64_t> num_messages = {};  ///< by sender and receiver
  WorkPtr last = nullptr;
  bool is_finalized = false;
};

inline FakeComm& comm_of(NcclComm* comm) { return *reinterpret_cast<FakeComm*>(comm); }
inline FakeStream& stream_of(GpuStream* stream) { return *reinterpret_cast<FakeStream*>(stream); }
/// An event holds the last work before it; null: none.
inline const WorkPtr& work_of(const GpuEvent& event) {
  return *static_cast<const WorkPtr*>(event.get());
}

/// The communicator of a call and the stream it is queued on.
struct NcclLane {
  NcclComm* comm = nullptr;
  GpuStream* stream = nullptr;
};

/// What the ranks of a job share.
struct FakeWorld {
  explicit FakeWorld(const FakeSchedule& schedule) : streams(schedule) {}
  FakeStreams streams;                                       ///< its mutex guards all below
  std::map<std::string, std::shared_ptr<FakeGroup>> groups;  // by id
  int num_ids = 0;
  int num_groups = 0;
  int num_made = 0;
  int num_destroyed = 0;
  int num_aborted = 0;
};

/// NCCL and the stream functions of one rank, which its NcclFunctions and GpuStreams call. Calls on
/// communicators become transfers of FakeStreams, which its ranks share.
class RankLibrary {
 public:
  RankLibrary(std::shared_ptr<FakeWorld> world, FakeRank& rank)
      : world_(std::move(world)), streams_(world_->streams), rank_(rank) {
    const std::lock_guard lock(streams_.mutex);
    gpu_ = &streams_.add_gpu();
  }

  FakeStream* stream(const std::string& name) {
    const std::lock_guard lock(streams_.mutex);
    return &gpu_->streams.try_emplace(name, FakeStream{name, gpu_, {}}).first->second;
  }

  void log(const std::string& line) { rank_.log.push_back(line); }

  std::string last_error() {
    const std::lock_guard lock(streams_.mutex);
    return rank_.last_error.empty() ? streams_.failure() : rank_.last_error;
  }

  NcclResult make_id(NcclId* id) {
    const std::lock_guard lock(streams_.mutex);
    const std::string text = "id " + std::to_string(++world_->num_ids);
    std::copy(text.begin(), text.end(), id->bytes.begin());
    return NcclResult::kSuccess;
  }

  NcclResult init(NcclComm** comm, int size, const NcclId& id, int rank) {
    std::unique_lock lock(streams_.mutex);
    auto& group = world_->groups[id.bytes.data()];
    if (!group) group = new_group(static_cast<size_t>(size));
    return join(lock, group, rank, comm);
  }

  NcclResult split(NcclComm* parent, int color, int key, NcclComm** comm) {
    std::unique_lock lock(streams_.mutex);
    FakeComm& own = comm_of(parent);
    FakeGroup& group = *own.group;
    if (own.last && !own.last->is_done) return kInvalidUsage;  // it has to be idle
    FakeGroup::Split& call = group.splits[own.num_splits++];
    call.color_and_key.resize(group.gpus.size());
    call.color_and_key[static_cast<size_t>(own.rank)] = {color, key};
    if (++call.num_called == group.gpus.size()) make_groups(call);
    streams_.changed.notify_all();
    while (call.groups.empty()) streams_.wait_for_others(lock, "ncclCommSplit");
    int rank = 0;
    for (size_t other = 0; other < call.color_and_key.size(); ++other) {
      const auto [other_color, other_key] = call.color_and_key[other];
      if (other_color == color && other_key < key) ++rank;
    }
    return join(lock, call.groups[static_cast<size_t>(own.rank)], rank, comm);
  }

  NcclResult poll(NcclComm* comm, NcclResult* state) {
    const std::lock_guard lock(streams_.mutex);
    *state = comm_of(comm).group->error;
    return NcclResult::kSuccess;
  }

  NcclResult finalize(NcclComm* comm) {
    std::unique_lock lock(streams_.mutex);
    streams_.wait(lock, *gpu_, comm_of(comm).last);
    comm_of(comm).is_finalized = true;
    return NcclResult::kSuccess;
  }

  NcclResult destroy(NcclComm* comm) {
    const std::lock_guard lock(streams_.mutex);
    const std::unique_ptr<FakeComm> own(&comm_of(comm));
    if (!own->is_finalized) return kInvalidUsage;
    ++world_->num_destroyed;
    return NcclResult::kSuccess;
  }

  NcclResult abort(NcclComm* comm) {
    const std::lock_guard lock(streams_.mutex);
    const std::unique_ptr<FakeComm> own(&comm_of(comm));
    fail(*own->group, kRemoteError);
    ++world_->num_aborted;
    return NcclResult::kSuccess;
  }

  NcclResult group_start() {
    log("ncclGroupStart");
    ++depth_;
    return NcclResult::kSuccess;
  }

  NcclResult group_end() {
    log("ncclGroupEnd");
    if (depth_ == 0) return kInvalidUsage;
    if (--depth_ > 0) return NcclResult::kSuccess;
    const auto planned = std::exchange(planned_, {});
    if (!planned.empty()) launch(group_lane_, planned);
    return NcclResult::kSuccess;
  }

  NcclResult collective(NcclLane lane, FakeSide side, const std::function<void(Sides&)>& move) {
    log(side.what);
    if (lane.comm == nullptr) return kInvalidArgument;
    FakeComm& own = comm_of(lane.comm);
    std::vector<int> ranks;
    for (size_t rank = 0; rank < own.group->gpus.size(); ++rank) {
      ranks.push_back(static_cast<int>(rank));
    }
    const auto checked = [move](Sides& sides) {
      for (const FakeSide& other : sides) {
        if (other.what != sides[0].what) return false;
      }
      move(sides);
      return true;
    };
    return start(lane, {std::move(side),
                        {-1, -1, own.num_collectives++},
                        static_cast<size_t>(own.rank),
                        std::move(ranks),
                        checked});
  }

  NcclResult message(NcclLane lane, FakeSide side, int peer, bool is_send) {
    log(side.what);
    if (lane.comm == nullptr) return kInvalidArgument;
    FakeComm& own = comm_of(lane.comm);
    const auto ends = is_send ? std::pair(own.rank, peer) : std::pair(peer, own.rank);
    const auto move = [](Sides& sides) {
      if (sides[0].bytes != sides[1].bytes) return false;
      std::memcpy(sides[1].out, sides[0].in, sides[0].bytes);
      return true;
    };
    return start(lane, {std::move(side),
                        {ends.first, ends.second, own.num_messages[ends]++},
                        is_send ? 0U : 1U,
                        {ends.first, ends.second},
                        move});
  }

  GpuEvent record(GpuStream* stream) {
    const std::lock_guard lock(streams_.mutex);
    const FakeStream& recorded = stream_of(stream);
    log("record " + recorded.name);
    return std::make_shared<WorkPtr>(recorded.queue.empty() ? nullptr : recorded.queue.back());
  }

  void wait(GpuStream* stream, const GpuEvent& event) {
    std::unique_lock lock(streams_.mutex);
    FakeStream& waiting = stream_of(stream);
    log("wait " + waiting.name);
    const WorkPtr& work = work_of(event);
    if (!is_communication(waiting)) return streams_.wait(lock, *gpu_, work);
    if (!work || work->is_done) return;
    const auto own = std::make_shared<FakeWork>();
    own->what = "a wait for " + work->what;
    own->event = work;
    streams_.queue(waiting, own);
  }

  void copy(void* to, const void* from, size_t bytes, GpuStream* stream) {
    const std::lock_guard lock(streams_.mutex);
    log("copy " + std::to_string(bytes));
    const auto work = std::make_shared<FakeWork>();
    work->what = "a copy";
    work->copy = [=] { std::memcpy(to, from, bytes); };
    streams_.queue(stream_of(stream), work);
  }

  bool is_done(const GpuEvent& event) {
    const std::lock_guard lock(streams_.mutex);
    return streams_.is_done(*gpu_, work_of(event));
  }

  /// The host does the work of all other streams itself, at once.
  static bool is_communication(const FakeStream& stream) {
    return std::ranges::find(kFakeStreams, stream.name) != kFakeStreams.end();
  }

 private:
  std::shared_ptr<FakeGroup> new_group(size_t size) {
    auto group = std::make_shared<FakeGroup>();
    group->number = world_->num_groups++;
    group->gpus.resize(size);
    return group;
  }

  void make_groups(FakeGroup::Split& call) {
    std::map<int, std::shared_ptr<FakeGroup>> by_color;
    for (const auto& [color, key] : call.color_and_key) {
      auto& group = by_color[color];
      if (!group) group = new_group(0);
      group->gpus.push_back(nullptr);
    }
    for (const auto& [color, key] : call.color_and_key) call.groups.push_back(by_color[color]);
  }

  /// Blocks until all ranks have joined.
  NcclResult join(std::unique_lock<std::mutex>& lock, const std::shared_ptr<FakeGroup>& group,
                  int rank, NcclComm** comm) {
    group->gpus[static_cast<size_t>(rank)] = gpu_;
    ++group->num_joined;
    ++world_->num_made;
    *comm = reinterpret_cast<NcclComm*>(new FakeComm{group, rank});
    streams_.changed.notify_all();
    while (group->num_joined < group->gpus.size()) {
      streams_.wait_for_others(lock,
                               "connecting ranks of communicator " + std::to_string(group->number));
    }
    return NcclResult::kSuccess;
  }

  void fail(FakeGroup& group, NcclResult why) {
    if (group.error == NcclResult::kSuccess) group.error = why;
    for (const WorkPtr& work : group.works) streams_.drop(work);
    group.works.clear();
    group.transfers.clear();
    streams_.changed.notify_all();
  }

  /// At once, or at the end of the open group, of one communicator as all of ours are.
  NcclResult start(NcclLane lane, PlannedSide planned) {
    if (depth_ == 0) return launch(lane, {std::move(planned)});
    group_lane_ = lane;
    planned_.push_back(std::move(planned));
    return NcclResult::kSuccess;
  }

  NcclResult launch(NcclLane lane, const std::vector<PlannedSide>& all) {
    const std::lock_guard lock(streams_.mutex);
    FakeComm& own = comm_of(lane.comm);
    const std::shared_ptr<FakeGroup> group = own.group;
    const auto work = std::make_shared<FakeWork>();
    work->is_launch = true;
    work->what = all[0].side.what + (all.size() > 1 ? " and more" : "") + " of communicator " +
                 std::to_string(group->number);
    work->on_bad_sides = [this, group] { fail(*group, kInvalidUsage); };
    for (const PlannedSide& planned : all) {
      TransferPtr& transfer = group->transfers[planned.key];
      if (!transfer) {
        transfer = std::make_shared<FakeTransfer>();
        transfer->move = planned.move;
        for (const int rank : planned.ranks) {
          transfer->sides.push_back({.gpu = group->gpus[static_cast<size_t>(rank)]});
        }
      }
      FakeSide& side = transfer->sides[planned.index];
      side = planned.side;
      side.gpu = gpu_;
      side.work = work;
      work->transfers.push_back(transfer);
      const auto is_launched = [](const FakeSide& other) { return other.work != nullptr; };
      if (std::ranges::all_of(transfer->sides, is_launched)) group->transfers.erase(planned.key);
    }
    own.last = work;
    streams_.queue(stream_of(lane.stream), work);
    std::erase_if(group->works, [](const WorkPtr& other) { return other->is_done; });
    group->works.push_back(work);
    if (group->error != NcclResult::kSuccess) fail(*group, group->error);
    return NcclResult::kSuccess;
  }

  std::shared_ptr<FakeWorld> world_;
  FakeStreams& streams_;
  FakeRank& rank_;
  FakeGpu* gpu_ = nullptr;
  int depth_ = 0;
  NcclLane group_lane_;
  std::vector<PlannedSide> planned_;
};

}  // namespace shoal::testing
