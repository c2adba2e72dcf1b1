#include "tests/support/fake_nccl.h"

#include <torch/types.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "tests/support/fake_rank_library.h"

namespace shoal::testing {

namespace {

torch::Tensor tensor_of(const void* data, size_t count, torch::ScalarType type) {
  return torch::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)}, type);
}

torch::Tensor reduced(const Sides& sides, size_t count, torch::ScalarType type, ReduceOp op) {
  torch::Tensor result = tensor_of(sides[0].in, count, type).clone();
  for (size_t rank = 1; rank < sides.size(); ++rank) {
    const torch::Tensor next = tensor_of(sides[rank].in, count, type);
    if (op == ReduceOp::kSum) {
      result.add_(next);
    } else {
      result = op == ReduceOp::kMax ? at::maximum(result, next) : at::minimum(result, next);
    }
  }
  return result;
}

/// The counts of calls that only move data are taken for bytes.
void require_bytes(torch::ScalarType type) {
  TORCH_CHECK(type == torch::kByte, "expected bytes, got ", type);
}

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
  nccl.comm_split = [library, &rank](NcclComm* parent, int color, int key, bool shares,
                                     NcclComm** comm) {
    rank.log.push_back(shares ? "ncclCommSplit, shares" : "ncclCommSplit");
    return library->split(parent, color, key, comm);
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
  nccl.get_last_error = [library](NcclComm*) { return library->last_error(); };
}

void add_reductions(NcclFunctions& nccl, const Library& library) {
  nccl.all_reduce = [library](const void* in, void* out, size_t count, torch::ScalarType type,
                              ReduceOp op, NcclComm* comm, GpuStream* stream) {
    const auto move = [=](Sides& sides) {
      const torch::Tensor sum = reduced(sides, count, type, op);
      for (FakeSide& side : sides) tensor_of(side.out, count, type).copy_(sum);
    };
    return library->collective({comm, stream}, {"ncclAllReduce " + std::to_string(count), in, out},
                               move);
  };
  nccl.reduce_scatter = [library](const void* in, void* out, size_t count, torch::ScalarType type,
                                  ReduceOp op, NcclComm* comm, GpuStream* stream) {
    const auto move = [=](Sides& sides) {
      const torch::Tensor sum = reduced(sides, count * sides.size(), type, op);
      const auto part = static_cast<int64_t>(count);
      for (size_t to = 0; to < sides.size(); ++to) {
        tensor_of(sides[to].out, count, type)
            .copy_(sum.narrow(0, static_cast<int64_t>(to) * part, part));
      }
    };
    return library->collective({comm, stream},
                               {"ncclReduceScatter " + std::to_string(count), in, out}, move);
  };
  nccl.reduce = [library](const void* in, void* out, size_t count, torch::ScalarType type,
                          ReduceOp op, int root, NcclComm* comm, GpuStream* stream) {
    const auto move = [=](Sides& sides) {
      const torch::Tensor sum = reduced(sides, count, type, op);
      tensor_of(sides[static_cast<size_t>(root)].out, count, type).copy_(sum);
    };
    const std::string what = "ncclReduce " + std::to_string(root) + " " + std::to_string(count);
    return library->collective({comm, stream}, {what, in, out}, move);
  };
}

void add_transfers(NcclFunctions& nccl, const Library& library) {
  nccl.group_start = [library] { return library->group_start(); };
  nccl.group_end = [library] { return library->group_end(); };
  nccl.all_gather = [library](const void* in, void* out, size_t bytes, torch::ScalarType type,
                              NcclComm* comm, GpuStream* stream) {
    require_bytes(type);
    const auto move = [=](Sides& sides) {
      for (const FakeSide& to : sides) {
        for (size_t from = 0; from < sides.size(); ++from) {
          std::memcpy(static_cast<char*>(to.out) + from * bytes, sides[from].in, bytes);
        }
      }
    };
    return library->collective({comm, stream}, {"ncclAllGather " + std::to_string(bytes), in, out},
                               move);
  };
  nccl.broadcast = [library](const void* in, void* out, size_t bytes, torch::ScalarType type,
                             int root, NcclComm* comm, GpuStream* stream) {
    require_bytes(type);
    const auto move = [=](Sides& sides) {
      for (const FakeSide& to : sides) {
        std::memmove(to.out, sides[static_cast<size_t>(root)].in, bytes);
      }
    };
    const std::string what = "ncclBroadcast " + std::to_string(root) + " " + std::to_string(bytes);
    return library->collective({comm, stream}, {what, in, out}, move);
  };
  nccl.send = [library](const void* in, size_t bytes, torch::ScalarType type, int peer,
                        NcclComm* comm, GpuStream* stream) {
    require_bytes(type);
    const std::string what = "ncclSend " + std::to_string(peer) + " " + std::to_string(bytes);
    return library->message({comm, stream}, {what, in, nullptr, bytes}, peer, true);
  };
  nccl.recv = [library](void* out, size_t bytes, torch::ScalarType type, int peer, NcclComm* comm,
                        GpuStream* stream) {
    require_bytes(type);
    const std::string what = "ncclRecv " + std::to_string(peer) + " " + std::to_string(bytes);
    return library->message({comm, stream}, {what, nullptr, out, bytes}, peer, false);
  };
}

void add_streams(GpuStreams& streams, const Library& library, FakeRank& rank) {
  const auto named = [library](const std::string& name) {
    return reinterpret_cast<GpuStream*>(library->stream(name));
  };
  streams.pci_id = "0000:00:00.0";
  for (size_t i = 0; i < kFakeStreams.size(); ++i) {
    streams.communication[i] = named(std::string(kFakeStreams[i]));
  }
  streams.current = [named, &rank] { return named(rank.current_stream); };
  streams.record = [library](GpuStream* stream) { return library->record(stream); };
  streams.wait = [library](GpuStream* stream, const GpuEvent& event) {
    library->wait(stream, event);
  };
  streams.is_done = [library](const GpuEvent& event) { return library->is_done(event); };
  streams.copy = [library](void* to, const void* from, size_t bytes, GpuStream* stream) {
    library->copy(to, from, bytes, stream);
  };
}

}  // namespace

FakeNccl::FakeNccl(const FakeSchedule& schedule) : world_(std::make_shared<FakeWorld>(schedule)) {}

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
  const std::lock_guard lock(world_->streams.mutex);
  return world_->num_made;
}

int FakeNccl::num_destroyed() const {
  const std::lock_guard lock(world_->streams.mutex);
  return world_->num_destroyed;
}

int FakeNccl::num_aborted() const {
  const std::lock_guard lock(world_->streams.mutex);
  return world_->num_aborted;
}

std::shared_ptr<const NcclBackend> backend_of(const std::shared_ptr<FakeRank>& rank) {
  return {rank, &rank->backend};
}

}  // namespace shoal::testing
