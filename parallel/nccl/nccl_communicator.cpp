#include "parallel/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/communicator_checks.h"
#include "parallel/nccl/nccl_link.h"
#include "parallel/nccl/nccl_watch.h"

namespace shoal {
namespace {

/// Equal counts on every rank, known to every rank: then NCCL's own collective fits.
bool are_even(const RowCounts& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](int64_t count) { return count == rows[0]; });
}

/// The backend's watch forgets the link's transfers before it goes.
template <typename... Args>
std::shared_ptr<NcclLink> make_link(Args&&... args) {
  return {new NcclLink(std::forward<Args>(args)...), [](NcclLink* link) {
            if (const auto& watch = link->backend().watch) watch->forget(*link);
            delete link;
          }};
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> control, std::shared_ptr<NcclLink> link)
      : control_(std::move(control)),
        link_(std::move(link)),
        counters_(std::make_shared<Counters>()) {
    counters_->group = control_->counters().group;
    counters_->order = control_->counters().order;
  }

  int64_t rank() const override { return control_->rank(); }
  int64_t size() const override { return control_->size(); }
  const Counters& counters() const override { return *counters_; }

  // ncclCommSplit needs this communicator idle on all ranks.
  std::unique_ptr<Communicator> split(int64_t color, int64_t key, Traffic traffic) override {
    barrier(kNever);
    auto control = control_->split(color, key);
    auto link = make_link(*control, *link_, color, traffic);
    return std::make_unique<NcclCommunicator>(std::move(control), std::move(link));
  }

  Pending start_all_reduce(torch::Tensor buffer, ReduceOp op) override {
    check_all_reduce(buffer, rules());
    const auto count = buffer.numel();
    const torch::Tensor elements = buffer.view({-1});  // the rows in messages
    return start(Collective::kAllReduce, {elements}, {count}, {count}, [&](const NcclCall& call) {
      if (count == 0) return;
      link_->check(
          nccl().all_reduce(buffer.data_ptr(), buffer.data_ptr(), static_cast<size_t>(count),
                            buffer.scalar_type(), op, link_->comm(), link_->stream()),
          "ncclAllReduce", call);
    });
  }

  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    check_all_to_all({*this, rules()}, in, send_rows, out, recv_rows);
    counters_->sent_bytes += rows_to_others(*this, send_rows) * row_bytes(in);
    return start(Collective::kAllToAll, {in, out}, send_rows, recv_rows, [&](const NcclCall& call) {
      exchange(call, parts_of(in, send_rows), parts_of(out, recv_rows));
    });
  }

  Pending start_all_gather(torch::Tensor in, torch::Tensor out, const RowCounts& rows) override {
    check_all_gather({*this, rules()}, in, out, rows);
    return start(Collective::kAllGather, {in, out}, {in.size(0)}, rows, [&](const NcclCall& call) {
      const auto bytes = static_cast<size_t>(in.nbytes());
      if (!are_even(rows)) {
        const RowParts to_each(rows.size(), {static_cast<char*>(in.data_ptr()), bytes});
        exchange(call, to_each, parts_of(out, rows));
      } else if (bytes > 0) {
        link_->check(nccl().all_gather(in.data_ptr(), out.data_ptr(), bytes, torch::kByte,
                                       link_->comm(), link_->stream()),
                     "ncclAllGather", call);
      }
    });
  }

  Pending start_reduce_scatter(torch::Tensor in, torch::Tensor out,
                               const RowCounts& rows) override {
    check_reduce_scatter({*this, rules()}, in, out, rows);
    const RowCounts own_rows{out.size(0)};
    return start(Collective::kReduceScatter, {in, out}, rows, own_rows, [&](const NcclCall& call) {
      if (!are_even(rows)) {
        reduce_uneven(call, in, out, rows);
      } else if (out.numel() > 0) {
        link_->check(
            nccl().reduce_scatter(in.data_ptr(), out.data_ptr(), static_cast<size_t>(out.numel()),
                                  in.scalar_type(), ReduceOp::kSum, link_->comm(), link_->stream()),
            "ncclReduceScatter", call);
      }
    });
  }

  Pending start_broadcast(torch::Tensor buffer, int64_t root) override {
    check_broadcast({*this, rules()}, buffer, root);
    const RowCounts rows{buffer.dim() == 0 ? 1 : buffer.size(0)};
    return start(Collective::kBroadcast, {buffer}, rows, rows, [&](const NcclCall& call) {
      if (buffer.nbytes() == 0) return;
      link_->check(nccl().broadcast(buffer.data_ptr(), buffer.data_ptr(),
                                    static_cast<size_t>(buffer.nbytes()), torch::kByte,
                                    static_cast<int>(root), link_->comm(), link_->stream()),
                   "ncclBroadcast", call);
    });
  }

  void barrier(std::chrono::milliseconds limit) override {
    const NcclCall call{.name = "barrier", .sequence = sequence_++};
    GpuEvent queued;
    {
      const auto turn = link_->lock_launches();
      link_->check_alive(call);
      queued = link_->streams().record(link_->stream());
    }
    limit = std::min(limit, link_->backend().limits.barrier);
    link_->drain(queued, call, limit);
    control_->barrier(limit);
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
  const NcclFunctions& nccl() const { return link_->nccl(); }

  BufferRules rules() const {
    return {.device = link_->streams().device, .reduces_bfloat16 = true};
  }

  /// Queues what `launch` hands to NCCL between the work that uses the buffers before and after.
  /// The rows are those of the first buffer.
  template <typename Launch>
  Pending start(Collective kind, std::vector<torch::Tensor> buffers, const RowCounts& send_rows,
                const RowCounts& recv_rows, const Launch& launch) {
    count_call(*counters_, kind);
    const NcclCall call{name_of(kind), sequence_++, send_rows, recv_rows, row_bytes(buffers[0])};
    const NcclBackend& backend = link_->backend();
    const GpuStreams& streams = backend.streams;
    GpuStream* const start_stream = streams.current();
    const auto turn = link_->lock_launches();
    link_->check_alive(call);
    streams.wait(link_->stream(), streams.record(start_stream));
    if (link_->traffic() == Traffic::kGradients && backend.last_exchange) {
      streams.wait(link_->stream(), backend.last_exchange);
    }
    {
      const auto watched = watch_host_call(*link_, call, backend.limits.launch);
      launch(call);
    }
    const GpuEvent finished = streams.record(link_->stream());
    if (link_->traffic() == Traffic::kExchange) backend.last_exchange = finished;
    if (backend.watch) backend.watch->add(*link_, call, finished);
    // Buffers go back to the allocator when this returns, and it hands memory out again to the
    // stream it was allocated for, without asking whether other streams are done with it. That
    // stream is the one that was current at the start, or the one that is now: so both wait.
    const auto finish = [link = link_, call, start_stream, finished] {
      link->poll(call);
      GpuStream* const now = link->streams().current();
      link->streams().wait(now, finished);
      if (now != start_stream) link->streams().wait(start_stream, finished);
    };
    return {finish, std::move(buffers)};
  }

  /// `body` makes calls of NCCL's and hands their results to its argument. An error is thrown after
  /// ncclGroupEnd: NCCL counts open groups per thread, and none may stay open.
  template <typename Body>
  void in_group(const NcclCall& call, const Body& body) {
    link_->check(nccl().group_start(), "ncclGroupStart", call);
    NcclResult first_error = NcclResult::kSuccess;
    const char* failed = nullptr;
    const auto note = [&](NcclResult result, const char* function) {
      if (!is_error(result) || is_error(first_error)) return;
      first_error = result;
      failed = function;
    };
    body(note);
    note(nccl().group_end(), "ncclGroupEnd");
    link_->check(first_error, failed, call);
  }

  // Always of messages: a rank sees its own counts only, so none can tell whether they are even
  // everywhere. A message of no bytes is left out at both ends, which know its size.
  void exchange(const NcclCall& call, const RowParts& in, const RowParts& out) {
    const auto own = static_cast<size_t>(rank());
    if (!in[own].empty()) {
      link_->streams().copy(out[own].data(), in[own].data(), in[own].size(), link_->stream());
    }
    in_group(call, [&](const auto& note) {
      for (size_t step = 1; step < in.size(); ++step) {
        const size_t to = (own + step) % in.size();
        const size_t from = (own + in.size() - step) % in.size();
        if (!in[to].empty()) {
          note(nccl().send(in[to].data(), in[to].size(), torch::kByte, static_cast<int>(to),
                           link_->comm(), link_->stream()),
               "ncclSend");
        }
        if (!out[from].empty()) {
          note(nccl().recv(out[from].data(), out[from].size(), torch::kByte, static_cast<int>(from),
                           link_->comm(), link_->stream()),
               "ncclRecv");
        }
      }
    });
  }

  /// One ncclReduce for each rank that gets rows.
  void reduce_uneven(const NcclCall& call, const torch::Tensor& in, const torch::Tensor& out,
                     const RowCounts& rows) {
    const RowParts parts = parts_of(in, rows);
    in_group(call, [&](const auto& note) {
      for (size_t root = 0; root < parts.size(); ++root) {
        if (parts[root].empty()) continue;
        const size_t count = parts[root].size() / static_cast<size_t>(in.element_size());
        void* const sum = static_cast<int64_t>(root) == rank() ? out.data_ptr() : nullptr;
        note(nccl().reduce(parts[root].data(), sum, count, in.scalar_type(), ReduceOp::kSum,
                           static_cast<int>(root), link_->comm(), link_->stream()),
             "ncclReduce");
      }
    });
  }

  std::unique_ptr<Communicator> control_;
  std::shared_ptr<NcclLink> link_;
  int64_t sequence_ = 0;
  std::shared_ptr<Counters> counters_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> control,
                                                     std::shared_ptr<const NcclBackend> backend) {
  auto link = make_link(*control, std::move(backend));
  return std::make_unique<NcclCommunicator>(std::move(control), std::move(link));
}

}  // namespace shoal
