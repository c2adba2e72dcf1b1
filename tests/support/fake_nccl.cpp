#include "tests/support/fake_nccl.h"

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace shoal::testing {

namespace {

using Done = std::shared_ptr<bool>;

/// One rank's side of a collective, of a send or of a receive.
struct Side {
  std::string what;  // equal on all ranks, or the call fails
  const void* in = nullptr;
  void* out = nullptr;
  size_t bytes = 0;
  Done done = std::make_shared<bool>(false);
};

using CallSides = std::vector<Side>;

/// A collective that some ranks have called.
struct Slot {
  CallSides sides;
  size_t num_posted = 0;
};

/// A communicator over all its ranks.
struct FakeGroup {
  size_t size = 0;
  size_t num_joined = 0;
  NcclResult error = NcclResult::kSuccess;
  std::map<int64_t, Slot> slots;
  std::map<std::pair<int, int>, std::deque<Side>> sends;  // by sender and receiver
  std::map<std::pair<int, int>, std::deque<Side>> receives;
  std::vector<Done> posted;

  void fail(NcclResult why) {
    error = why;
    for (const Done& done : posted) *done = true;  // an aborted kernel ends
  }
};

/// A communicator as one rank holds it.
struct FakeComm {
  std::shared_ptr<FakeGroup> group;
  int rank = 0;
  int64_t num_collectives = 0;
  int busy_polls = 3;
  bool is_finalized = false;
};

struct FakeStream {
  std::string name;
  std::vector<Done> work;
};

FakeComm& comm_of(NcclComm* comm) { return *reinterpret_cast<FakeComm*>(comm); }
FakeStream& stream_of(GpuStream* stream) { return *reinterpret_cast<FakeStream*>(stream); }

torch::Tensor tensor_of(const void* data, size_t count, NcclType type) {
  const auto dtype = type == NcclType::kFloat32    ? torch::kFloat
                     : type == NcclType::kFloat64  ? torch::kDouble
                     : type == NcclType::kInt64    ? torch::kLong
                     : type == NcclType::kBfloat16 ? torch::kBFloat16
                                                   : torch::kByte;
  return torch::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)}, dtype);
}

torch::Tensor reduced(const CallSides& sides, size_t count, NcclType type, NcclOp op) {
  torch::Tensor result = tensor_of(sides[0].in, count, type).clone();
  for (size_t rank = 1; rank < sides.size(); ++rank) {
    const torch::Tensor next = tensor_of(sides[rank].in, count, type);
    if (op == NcclOp::kSum) {
      result.add_(next);
    } else {
      result = op == NcclOp::kMax ? at::maximum(result, next) : at::minimum(result, next);
    }
  }
  return result;
}

/// The communicator of a call and the stream it is queued on.
struct NcclLane {
  NcclComm* comm = nullptr;
  GpuStream* stream = nullptr;
};

/// The counts of calls that only move data are taken for bytes.
void require_bytes(NcclType type) {
  TORCH_CHECK(type == NcclType::kUint8, "expected bytes, got type ", static_cast<int>(type));
}

std::string text_of(size_t number) { return std::to_string(number); }

}  // namespace

struct FakeWorld {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<FakeGroup>> groups;  // by id
  int num_ids = 0;
  int num_made = 0;
  int num_destroyed = 0;
  int num_aborted = 0;
};

namespace {

/// What the tables of one rank call; their functions share it.
class RankLibrary {
 public:
  RankLibrary(std::shared_ptr<FakeWorld> world, FakeRank& rank)
      : world_(std::move(world)), rank_(rank) {}

  FakeStream* stream(const std::string& name) {
    std::unique_ptr<FakeStream>& found = streams_[name];
    if (!found) found = std::make_unique<FakeStream>(FakeStream{name, {}});
    return found.get();
  }

  void log(const std::string& line) { rank_.log.push_back(line); }

  NcclResult init(NcclComm** comm, int size, const NcclId& id, int rank) {
    const std::lock_guard lock(world_->mutex);
    auto& group = world_->groups[id.bytes.data()];
    if (!group) group = std::make_shared<FakeGroup>();
    group->size = static_cast<size_t>(size);
    ++group->num_joined;
    ++world_->num_made;
    *comm = reinterpret_cast<NcclComm*>(new FakeComm{group, rank});
    return NcclResult::kInProgress;
  }

  NcclResult make_id(NcclId* id) {
    const std::lock_guard lock(world_->mutex);
    const std::string text = "id " + std::to_string(++world_->num_ids);
    std::copy(text.begin(), text.end(), id->bytes.begin());
    return NcclResult::kSuccess;
  }

  NcclResult poll(NcclComm* comm, NcclResult* state) {
    const std::lock_guard lock(world_->mutex);
    FakeComm& own = comm_of(comm);
    *state = own.group->error;
    const bool is_busy = own.group->num_joined < own.group->size || own.busy_polls > 0;
    if (*state == NcclResult::kSuccess && is_busy) {
      --own.busy_polls;
      *state = NcclResult::kInProgress;
    }
    return NcclResult::kSuccess;
  }

  NcclResult finalize(NcclComm* comm) {
    const std::lock_guard lock(world_->mutex);
    if (comm_of(comm).busy_polls > 0) return NcclResult::kInvalidUsage;
    comm_of(comm).is_finalized = true;
    comm_of(comm).busy_polls = 1;
    return NcclResult::kInProgress;
  }

  NcclResult destroy(NcclComm* comm) {
    const std::lock_guard lock(world_->mutex);
    const std::unique_ptr<FakeComm> own(&comm_of(comm));
    if (!own->is_finalized || own->busy_polls > 0) return NcclResult::kInvalidUsage;
    ++world_->num_destroyed;
    return NcclResult::kSuccess;
  }

  NcclResult abort(NcclComm* comm) {
    const std::lock_guard lock(world_->mutex);
    const std::unique_ptr<FakeComm> own(&comm_of(comm));
    own->group->fail(NcclResult::kRemoteError);
    ++world_->num_aborted;
    world_->changed.notify_all();
    return NcclResult::kSuccess;
  }

  NcclResult group_start() {
    log("ncclGroupStart");
    ++depth_;
    return NcclResult::kSuccess;
  }

  NcclResult group_end() {
    log("ncclGroupEnd");
    if (depth_ == 0) return NcclResult::kInvalidUsage;
    if (--depth_ > 0) return NcclResult::kSuccess;
    bool is_refused = false;
    for (const auto& post : std::exchange(waiting_, {})) {
      is_refused = post() != NcclResult::kInProgress || is_refused;
    }
    for (FakeComm* comm : std::exchange(in_group_, {})) comm->busy_polls = 2;
    return is_refused ? NcclResult::kInvalidUsage : NcclResult::kInProgress;
  }

  /// Posts this rank's side; the last rank's post moves the data.
  NcclResult collective(NcclLane lane, Side side, const std::function<void(CallSides&)>& move) {
    log(side.what);
    return start(lane, [=, this] {
      const std::lock_guard lock(world_->mutex);
      FakeComm& own = comm_of(lane.comm);
      FakeGroup& group = *own.group;
      const int64_t number = own.num_collectives++;
      Slot& slot = group.slots[number];
      slot.sides.resize(group.size);
      enter(lane, side);
      slot.sides[static_cast<size_t>(own.rank)] = side;
      if (++slot.num_posted < group.size || group.error != NcclResult::kSuccess) return;
      for (const Side& other : slot.sides) {
        if (other.what != slot.sides[0].what) group.fail(NcclResult::kInvalidUsage);
      }
      if (group.error == NcclResult::kSuccess) move(slot.sides);
      for (const Side& other : slot.sides) *other.done = true;
      group.slots.erase(number);
      world_->changed.notify_all();
    });
  }

  NcclResult message(NcclLane lane, Side side, int peer, bool is_send) {
    log(side.what);
    return start(lane, [=, this] {
      const std::lock_guard lock(world_->mutex);
      const int own = comm_of(lane.comm).rank;
      FakeGroup& group = *comm_of(lane.comm).group;
      const auto key = is_send ? std::pair(own, peer) : std::pair(peer, own);
      enter(lane, side);
      (is_send ? group.sends : group.receives)[key].push_back(side);
      auto& sends = group.sends[key];
      auto& receives = group.receives[key];
      const bool is_matched = !sends.empty() && !receives.empty();
      if (!is_matched || group.error != NcclResult::kSuccess) return;
      if (sends.front().bytes != receives.front().bytes) {
        group.fail(NcclResult::kInvalidUsage);
      } else {
        std::memcpy(receives.front().out, sends.front().in, sends.front().bytes);
      }
      *sends.front().done = *receives.front().done = true;
      sends.pop_front();
      receives.pop_front();
      world_->changed.notify_all();
    });
  }

  GpuEvent record(GpuStream* stream) {
    const std::lock_guard lock(world_->mutex);
    FakeStream& recorded = stream_of(stream);
    log("record " + recorded.name);
    std::erase_if(recorded.work, [](const Done& done) { return *done; });
    return std::make_shared<std::vector<Done>>(recorded.work);
  }

  void wait(GpuStream* stream, const GpuEvent& event) {
    std::unique_lock lock(world_->mutex);
    FakeStream& waiting = stream_of(stream);
    log("wait " + waiting.name);
    const auto& work = *static_cast<const std::vector<Done>*>(event.get());
    if (waiting.name == "communication") {
      waiting.work.insert(waiting.work.end(), work.begin(), work.end());
      return;
    }
    if (!world_->changed.wait_for(lock, std::chrono::seconds(60), [&] { return are_done(work); })) {
      throw std::runtime_error("stream " + waiting.name + " waits for work that never ends");
    }
  }

  bool is_done(const GpuEvent& event) {
    const std::lock_guard lock(world_->mutex);
    return are_done(*static_cast<const std::vector<Done>*>(event.get()));
  }

 private:
  static bool are_done(const std::vector<Done>& work) {
    for (const Done& done : work) {
      if (!*done) return false;
    }
    return true;
  }

  /// Makes the side part of its group's and its stream's work.
  static void enter(NcclLane lane, const Side& side) {
    FakeGroup& group = *comm_of(lane.comm).group;
    *side.done = group.error != NcclResult::kSuccess;
    group.posted.push_back(side.done);
    stream_of(lane.stream).work.push_back(side.done);
  }

  /// At once, or at the end of the open group. A communicator in progress refuses.
  NcclResult start(NcclLane lane, std::function<void()> post) {
    FakeComm* const comm = &comm_of(lane.comm);
    const auto checked_post = [comm, post = std::move(post)] {
      if (comm->busy_polls > 0) return NcclResult::kInvalidUsage;
      post();
      return NcclResult::kInProgress;
    };
    if (depth_ > 0) {
      waiting_.emplace_back(checked_post);
      in_group_.push_back(comm);
      return NcclResult::kSuccess;
    }
    const NcclResult result = checked_post();
    if (result == NcclResult::kInProgress) comm->busy_polls = 2;
    return result;
  }

  std::shared_ptr<FakeWorld> world_;
  FakeRank& rank_;
  std::map<std::string, std::unique_ptr<FakeStream>> streams_;
  int depth_ = 0;
  std::vector<std::function<NcclResult()>> waiting_;
  std::vector<FakeComm*> in_group_;
};

using Library = std::shared_ptr<RankLibrary>;

void add_management(NcclFunctions& nccl, const Library& library, FakeRank& rank) {
  nccl.header_version = 22809;
  nccl.library_file = nccl.torch_library_file = "/fake/libnccl.so.2";
  nccl.get_version = [](int* version) {
    *version = 22809;
    return NcclResult::kSuccess;
  };
  nccl.get_unique_id = [library](NcclId* id) { return library->make_id(id); };
  nccl.comm_init_rank = [library](NcclComm** comm, int size, const NcclId& id, int own) {
    return library->init(comm, size, id, own);
  };
  nccl.comm_get_async_error = [library](NcclComm* comm, NcclResult* state) {
    return library->poll(comm, state);
  };
  nccl.comm_finalize = [library](NcclComm* comm) { return library->finalize(comm); };
  nccl.comm_destroy = [library](NcclComm* comm) { return library->destroy(comm); };
  nccl.comm_abort = [library](NcclComm* comm) { return library->abort(comm); };
  nccl.get_error_string = [](NcclResult result) {
    return "result " + std::to_string(static_cast<int>(result));
  };
  nccl.get_last_error = [&rank](NcclComm*) { return rank.last_error; };
}

void add_reductions(NcclFunctions& nccl, const Library& library) {
  nccl.all_reduce = [library](const void* in, void* out, size_t count, NcclType type, NcclOp op,
                              NcclComm* comm, GpuStream* stream) {
    const auto move = [=](CallSides& sides) {
      const torch::Tensor sum = reduced(sides, count, type, op);
      for (Side& side : sides) tensor_of(side.out, count, type).copy_(sum);
    };
    return library->collective({comm, stream}, {"ncclAllReduce " + text_of(count), in, out}, move);
  };
  nccl.reduce_scatter = [library](const void* in, void* out, size_t count, NcclType type, NcclOp op,
                                  NcclComm* comm, GpuStream* stream) {
    const auto move = [=](CallSides& sides) {
      const torch::Tensor sum = reduced(sides, count * sides.size(), type, op);
      const auto part = static_cast<int64_t>(count);
      for (size_t to = 0; to < sides.size(); ++to) {
        tensor_of(sides[to].out, count, type)
            .copy_(sum.narrow(0, static_cast<int64_t>(to) * part, part));
      }
    };
    return library->collective({comm, stream}, {"ncclReduceScatter " + text_of(count), in, out},
                               move);
  };
  nccl.reduce = [library](const void* in, void* out, size_t count, NcclType type, NcclOp op,
                          int root, NcclComm* comm, GpuStream* stream) {
    const auto move = [=](CallSides& sides) {
      const torch::Tensor sum = reduced(sides, count, type, op);
      tensor_of(sides[static_cast<size_t>(root)].out, count, type).copy_(sum);
    };
    const std::string what = "ncclReduce " + std::to_string(root) + " " + text_of(count);
    return library->collective({comm, stream}, {what, in, out}, move);
  };
}

void add_transfers(NcclFunctions& nccl, const Library& library) {
  nccl.group_start = [library] { return library->group_start(); };
  nccl.group_end = [library] { return library->group_end(); };
  nccl.all_gather = [library](const void* in, void* out, size_t bytes, NcclType type,
                              NcclComm* comm, GpuStream* stream) {
    require_bytes(type);
    const auto move = [=](CallSides& sides) {
      for (const Side& to : sides) {
        for (size_t from = 0; from < sides.size(); ++from) {
          std::memcpy(static_cast<char*>(to.out) + from * bytes, sides[from].in, bytes);
        }
      }
    };
    return library->collective({comm, stream}, {"ncclAllGather " + text_of(bytes), in, out}, move);
  };
  nccl.broadcast = [library](const void* in, void* out, size_t bytes, NcclType type, int root,
                             NcclComm* comm, GpuStream* stream) {
    require_bytes(type);
    const auto move = [=](CallSides& sides) {
      for (const Side& to : sides) {
        std::memmove(to.out, sides[static_cast<size_t>(root)].in, bytes);
      }
    };
    const std::string what = "ncclBroadcast " + std::to_string(root) + " " + text_of(bytes);
    return library->collective({comm, stream}, {what, in, out}, move);
  };
  nccl.send = [library](const void* in, size_t bytes, NcclType type, int peer, NcclComm* comm,
                        GpuStream* stream) {
    require_bytes(type);
    const std::string what = "ncclSend " + std::to_string(peer) + " " + text_of(bytes);
    return library->message({comm, stream}, {what, in, nullptr, bytes}, peer, true);
  };
  nccl.recv = [library](void* out, size_t bytes, NcclType type, int peer, NcclComm* comm,
                        GpuStream* stream) {
    require_bytes(type);
    const std::string what = "ncclRecv " + std::to_string(peer) + " " + text_of(bytes);
    return library->message({comm, stream}, {what, nullptr, out, bytes}, peer, false);
  };
}

void add_streams(GpuStreams& streams, const Library& library, FakeRank& rank) {
  const auto named = [library](const std::string& name) {
    return reinterpret_cast<GpuStream*>(library->stream(name));
  };
  streams.pci_id = "0000:00:00.0";
  streams.communication = named("communication");
  streams.current = [named, &rank] { return named(rank.current_stream); };
  streams.record = [library](GpuStream* stream) { return library->record(stream); };
  streams.wait = [library](GpuStream* stream, const GpuEvent& event) {
    library->wait(stream, event);
  };
  streams.is_done = [library](const GpuEvent& event) { return library->is_done(event); };
  streams.copy = [library](void* to, const void* from, size_t bytes, GpuStream*) {
    library->log("copy " + text_of(bytes));
    std::memcpy(to, from, bytes);
  };
}

}  // namespace

FakeNccl::FakeNccl() : world_(std::make_shared<FakeWorld>()) {}

std::shared_ptr<FakeRank> FakeNccl::join() {
  auto rank = std::make_shared<FakeRank>();
  const auto library = std::make_shared<RankLibrary>(world_, *rank);
  add_management(rank->backend.nccl, library, *rank);
  add_reductions(rank->backend.nccl, library);
  add_transfers(rank->backend.nccl, library);
  add_streams(rank->backend.streams, library, *rank);
  return rank;
}

int FakeNccl::num_made() const {
  const std::lock_guard lock(world_->mutex);
  return world_->num_made;
}

int FakeNccl::num_destroyed() const {
  const std::lock_guard lock(world_->mutex);
  return world_->num_destroyed;
}

int FakeNccl::num_aborted() const {
  const std::lock_guard lock(world_->mutex);
  return world_->num_aborted;
}

std::shared_ptr<const NcclBackend> backend_of(const std::shared_ptr<FakeRank>& rank) {
  return {rank, &rank->backend};
}

}  // namespace shoal::testing
