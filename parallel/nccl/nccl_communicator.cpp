#include "parallel/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel/comm/communicator_checks.h"
#include "parallel/nccl/nccl_link.h"
#include "parallel/nccl/nccl_watch.h"

namespace shoal {
namespace {

NcclType type_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat:
      return NcclType::kFloat32;
    case torch::kDouble:
      return NcclType::kFloat64;
    case torch::kLong:
      return NcclType::kInt64;
    case torch::kBFloat16:
      return NcclType::kBfloat16;
    default:
      return NcclType::kUint8;
  }
}

NcclOp op_of(ReduceOp op) {
  if (op == ReduceOp::kMax) return NcclOp::kMax;
  return op == ReduceOp::kMin ? NcclOp::kMin : NcclOp::kSum;
}

/// Equal counts on every rank, known to every rank: then NCCL's own collective fits.
bool are_even(const RowCounts& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](int64_t count) { return count == rows[0]; });
}

/// A collective on its way. Holds what it needs by itself: a Pending may outlive its communicator.
struct InFlight {
  std::shared_ptr<NcclLink> link;
  std::shared_ptr<Communicator::Counters> counters;
  NcclCall call;
  std::unique_lock<std::recursive_mutex> turn;
  GpuStream* start_stream = nullptr;  // current when it started
  GpuEvent finished;                  // after the transfer, on the communication stream

  NcclLane lane() const { return link->lane(); }
  const NcclFunctions& nccl() const { return link->nccl(); }

  // Buffers go back to the allocator when this returns, and it hands memory out again to the stream
  // it was allocated for, without asking whether other streams are done with it. That stream is the
  // one that was current at the start, or the one that is now: so both wait.
  void finish() {
    const auto start = std::chrono::steady_clock::now();
    link->poll(call);
    const GpuStreams& streams = link->streams();
    GpuStream* const now = streams.current();
    streams.wait(now, finished);
    if (now != start_stream) streams.wait(start_stream, finished);
    counters->wait_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

using InFlightPtr = std::shared_ptr<InFlight>;

/// Where each rank's rows are in a buffer.
class RowParts {
 public:
  RowParts(const torch::Tensor& buffer, const RowCounts& rows, int64_t bytes_per_row)
      : base_(static_cast<char*>(buffer.data_ptr())), offsets_(rows.size() + 1, 0) {
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      offsets_[rank + 1] = offsets_[rank] + static_cast<size_t>(rows[rank] * bytes_per_row);
    }
  }
  char* at(int64_t rank) const { return base_ + offsets_[static_cast<size_t>(rank)]; }
  size_t bytes(int64_t rank) const {
    return offsets_[static_cast<size_t>(rank) + 1] - offsets_[static_cast<size_t>(rank)];
  }

 private:
  char* base_;
  std::vector<size_t> offsets_;
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> control,
                   std::shared_ptr<const NcclBackend> backend, const NcclLimits& limits)
      : control_(std::move(control)),
        backend_(std::move(backend)),
        limits_(limits),
        link_(std::make_shared<NcclLink>(*control_, backend_, limits_)),
        counters_(std::make_shared<Counters>()) {}

  int64_t rank() const override { return control_->rank(); }
  int64_t size() const override { return control_->size(); }
  const Counters& counters() const override { return *counters_; }

  // By an id of its own, not by ncclCommSplit, which would need this communicator to be healthy and
  // idle on every rank.
  std::unique_ptr<Communicator> split(int64_t color, int64_t key) override {
    return std::make_unique<NcclCommunicator>(control_->split(color, key), backend_, limits_);
  }

  Pending start_all_reduce(torch::Tensor buffer, ReduceOp op) override {
    check_all_reduce(buffer, rules());
    const auto count = buffer.numel();
    const InFlightPtr in_flight = begin(Collective::kAllReduce, buffer, {count}, {count});
    in_flight->call.bytes_per_row = buffer.element_size();
    if (count > 0) {
      const NcclResult result =
          in_flight->nccl().all_reduce(buffer.data_ptr(), static_cast<size_t>(count),
                                       type_of(buffer), op_of(op), in_flight->lane());
      link_->check(result, "ncclAllReduce", in_flight->call);
    }
    return finish(in_flight, {std::move(buffer)});
  }

  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    check_all_to_all({*this, rules()}, in, send_rows, out, recv_rows);
    const InFlightPtr in_flight = begin(Collective::kAllToAll, in, send_rows, recv_rows);
    const int64_t bytes_per_row = in_flight->call.bytes_per_row;
    exchange(*in_flight, {in, send_rows, bytes_per_row}, {out, recv_rows, bytes_per_row});
    counters_->sent_bytes += rows_to_others(*this, send_rows) * bytes_per_row;
    return finish(in_flight, {std::move(in), std::move(out)});
  }

  Pending start_all_gather(torch::Tensor in, torch::Tensor out, const RowCounts& rows) override {
    check_all_gather({*this, rules()}, in, out, rows);
    const InFlightPtr in_flight = begin(Collective::kAllGather, in, {in.size(0)}, rows);
    if (are_even(rows)) {
      const auto bytes = static_cast<size_t>(in.nbytes());
      if (bytes > 0) {
        const NcclResult result =
            in_flight->nccl().all_gather(in.data_ptr(), out.data_ptr(), bytes, in_flight->lane());
        link_->check(result, "ncclAllGather", in_flight->call);
      }
    } else {
      gather_uneven(*in_flight, in, {out, rows, in_flight->call.bytes_per_row});
    }
    return finish(in_flight, {std::move(in), std::move(out)});
  }

  Pending start_reduce_scatter(torch::Tensor in, torch::Tensor out,
                               const RowCounts& rows) override {
    check_reduce_scatter({*this, rules()}, in, out, rows);
    const InFlightPtr in_flight = begin(Collective::kReduceScatter, in, rows, {out.size(0)});
    if (are_even(rows)) {
      const auto count = static_cast<size_t>(out.numel());
      if (count > 0) {
        const NcclResult result = in_flight->nccl().reduce_scatter(
            in.data_ptr(), out.data_ptr(), count, type_of(in), in_flight->lane());
        link_->check(result, "ncclReduceScatter", in_flight->call);
      }
    } else {
      reduce_uneven(*in_flight, in, out, rows);
    }
    return finish(in_flight, {std::move(in), std::move(out)});
  }

  Pending start_broadcast(torch::Tensor buffer, int64_t root) override {
    check_broadcast({*this, rules()}, buffer, root);
    const int64_t num_rows = buffer.dim() == 0 ? 1 : buffer.size(0);
    const InFlightPtr in_flight = begin(Collective::kBroadcast, buffer, {num_rows}, {num_rows});
    if (buffer.nbytes() > 0) {
      const NcclResult result =
          in_flight->nccl().broadcast(buffer.data_ptr(), static_cast<size_t>(buffer.nbytes()),
                                      static_cast<int>(root), in_flight->lane());
      link_->check(result, "ncclBroadcast", in_flight->call);
    }
    return finish(in_flight, {std::move(buffer)});
  }

  void barrier() override {
    const NcclCall call{.name = "barrier", .sequence = sequence_++};
    link_->check_alive(call);
    const GpuStreams& streams = link_->streams();
    link_->drain(streams.record(streams.communication), call);
    control_->barrier();
  }

  void throw_if_failed() const override {
    link_->poll({.name = "what came before call", .sequence = sequence_});
  }

  [[noreturn]] void abort(int exit_code) override {
    link_->abort();
    control_->abort(exit_code);
    std::abort();  // GCC loses sight of what does not return
  }

 private:
  BufferRules rules() const {
    return {.device = backend_->streams.device, .reduces_bfloat16 = true};
  }

  /// Counts the call and has the communication stream wait for work that uses the buffers.
  InFlightPtr begin(Collective kind, const torch::Tensor& tensor, RowCounts send_rows,
                    RowCounts recv_rows) {
    count_call(*counters_, kind);
    auto in_flight = std::make_shared<InFlight>();
    in_flight->link = link_;
    in_flight->counters = counters_;
    in_flight->call = {.name = name_of(kind),
                       .sequence = sequence_++,
                       .send_rows = std::move(send_rows),
                       .recv_rows = std::move(recv_rows),
                       .bytes_per_row = row_bytes(tensor)};
    in_flight->turn = link_->busy();
    link_->check_alive(in_flight->call);
    const GpuStreams& streams = link_->streams();
    in_flight->start_stream = streams.current();
    streams.wait(streams.communication, streams.record(in_flight->start_stream));
    return in_flight;
  }

  // An event recorded while NCCL still works on the launch would lie before the transfer.
  Pending finish(const InFlightPtr& in_flight, std::vector<torch::Tensor> buffers) {
    link_->settle(in_flight->call);
    const GpuStreams& streams = link_->streams();
    in_flight->finished = streams.record(streams.communication);
    in_flight->turn.unlock();
    if (const auto watch = link_->backend().watch.lock()) {
      watch->add(*link_, in_flight->call, in_flight->finished);
    }
    return {[in_flight] { in_flight->finish(); }, std::move(buffers)};
  }

  void copy_own(void* to, const void* from, size_t bytes) const {
    const GpuStreams& streams = link_->streams();
    if (bytes > 0) streams.copy(to, from, bytes, streams.communication);
  }

  // Always of messages: a rank sees its own counts only, so none can tell whether they are even
  // everywhere. A message of no bytes is left out at both ends, which know its size.
  void exchange(InFlight& in_flight, const RowParts& in, const RowParts& out) {
    copy_own(out.at(rank()), in.at(rank()), in.bytes(rank()));
    NcclGroup group(*link_, in_flight.call);
    for (int64_t step = 1; step < size(); ++step) {
      const int64_t to = (rank() + step) % size();
      const int64_t from = (rank() + size() - step) % size();
      send(group, in.at(to), in.bytes(to), to);
      receive(group, out.at(from), out.bytes(from), from);
    }
    group.end();
  }

  void gather_uneven(InFlight& in_flight, const torch::Tensor& in, const RowParts& out) {
    copy_own(out.at(rank()), in.data_ptr(), out.bytes(rank()));
    NcclGroup group(*link_, in_flight.call);
    for (int64_t step = 1; step < size(); ++step) {
      const int64_t to = (rank() + step) % size();
      const int64_t from = (rank() + size() - step) % size();
      send(group, in.data_ptr(), out.bytes(rank()), to);
      receive(group, out.at(from), out.bytes(from), from);
    }
    group.end();
  }

  /// One ncclReduce for each rank that gets rows.
  void reduce_uneven(InFlight& in_flight, const torch::Tensor& in, const torch::Tensor& out,
                     const RowCounts& rows) {
    const RowParts parts(in, rows, in_flight.call.bytes_per_row);
    NcclGroup group(*link_, in_flight.call);
    for (int64_t root = 0; root < size(); ++root) {
      if (parts.bytes(root) == 0) continue;
      const size_t count = parts.bytes(root) / static_cast<size_t>(in.element_size());
      void* const sum = root == rank() ? out.data_ptr() : nullptr;
      group.note(in_flight.nccl().reduce(parts.at(root), sum, count, type_of(in),
                                         static_cast<int>(root), in_flight.lane()),
                 "ncclReduce");
    }
    group.end();
  }

  void send(NcclGroup& group, const void* from, size_t bytes, int64_t peer) {
    if (bytes == 0) return;
    group.note(link_->nccl().send(from, bytes, static_cast<int>(peer), link_->lane()), "ncclSend");
  }

  void receive(NcclGroup& group, void* to, size_t bytes, int64_t peer) {
    if (bytes == 0) return;
    group.note(link_->nccl().recv(to, bytes, static_cast<int>(peer), link_->lane()), "ncclRecv");
  }

  std::unique_ptr<Communicator> control_;
  std::shared_ptr<const NcclBackend> backend_;
  NcclLimits limits_;
  std::shared_ptr<NcclLink> link_;
  int64_t sequence_ = 0;
  std::shared_ptr<Counters> counters_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     std::shared_ptr<const NcclBackend> backend,
                                                     const NcclLimits& limits) {
  return std::make_unique<NcclCommunicator>(std::move(control), std::move(backend), limits);
}

}  // namespace shoal
