#include <c10/util/SmallVector.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>
#include <thread>
#include <utility>

#include "parallel/comm/communicator_checks.h"
#include "runtime/base/error.h"

namespace shoal {
namespace {

// Tags of point-to-point messages run through the numbers that every MPI must allow.
constexpr int kNumTags = 32768;
// Up to this number no memory is asked for.
constexpr size_t kInlineMessages = 16;

std::string library_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "code " + std::to_string(code);
  return {text, static_cast<size_t>(length)};
}

/// Throws CommError if an MPI call that belongs to no started collective failed.
void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  throw CommError(std::string(call) + ": " + library_text(code));
}

/// After MPI_Abort no exit handler may enter MPI again.
std::atomic<bool>& aborted() {
  static std::atomic<bool> flag{false};
  return flag;
}

bool is_running() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised != 0 && finalised == 0;
}

void finalise_at_exit() {
  if (is_running() && !aborted()) MPI_Finalize();
}

void initialise_once() {
  if (is_running()) return;
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  std::atexit(finalise_at_exit);
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (provided < MPI_THREAD_MULTIPLE) {
    throw CommError("MPI_Init_thread: this MPI grants no MPI_THREAD_MULTIPLE",
                    "use an Open MPI built with thread support");
  }
}

/// Frees the communicator when neither its owner nor a call in flight needs it: Open MPI crashes
/// in a nonblocking collective whose communicator was freed.
struct CommHandle {
  explicit CommHandle(MPI_Comm comm) : comm(comm) {}
  CommHandle(const CommHandle&) = delete;
  CommHandle& operator=(const CommHandle&) = delete;
  ~CommHandle() {
    if (is_running() && !aborted()) MPI_Comm_free(&comm);
  }
  MPI_Comm comm;
};

MPI_Datatype reduced_type(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat:
      return MPI_FLOAT;
    case torch::kDouble:
      return MPI_DOUBLE;
    case torch::kLong:
      return MPI_INT64_T;
    default:
      return MPI_UINT8_T;
  }
}

MPI_Op reduce_op(ReduceOp op) {
  if (op == ReduceOp::kMax) return MPI_MAX;
  return op == ReduceOp::kMin ? MPI_MIN : MPI_SUM;
}

char* at_byte(const torch::Tensor& tensor, int64_t byte) {
  return static_cast<char*>(tensor.data_ptr()) + byte;
}

/// Everything MPI reads or writes while a collective is in flight, and its name for errors.
struct InFlight {
  InFlight() = default;
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  Collective kind = Collective::kAllReduce;
  int64_t sequence = 0;
  std::shared_ptr<CommHandle> comm;
  int rank = 0;
  int size = 1;
  RowCounts send_rows;
  RowCounts recv_rows;
  int64_t bytes_per_row = 0;
  c10::SmallVector<MPI_Request, kInlineMessages> requests;
  c10::SmallVector<int64_t, kInlineMessages> expected_bytes;  // of the requests that receive: first
  std::vector<int> counts, displacements;

  /// The ranks' parts of a buffer, in numbers of so many bytes.
  void set_counts(const RowParts& parts, int64_t bytes) {
    for (const std::span<char>& part : parts) {
      counts.push_back(static_cast<int>(std::ssize(part) / bytes));
      displacements.push_back(static_cast<int>((part.data() - parts[0].data()) / bytes));
    }
  }

  MPI_Request* new_request() { return &requests.emplace_back(MPI_REQUEST_NULL); }
  int tag() const { return static_cast<int>(sequence % kNumTags); }

  [[noreturn]] void fail(const char* call, const std::string& text) const {
    throw CommError(
        fmt::format("{} #{}: {} failed on rank {} of {} (send {}, receive {} rows of {} "
                    "bytes): {}",
                    name_of(kind), sequence, call, rank, size, send_rows, recv_rows, bytes_per_row,
                    text),
        "a peer may have died or called something else; look at its log");
  }

  void check_call(int code, const char* call) const {
    if (code != MPI_SUCCESS) fail(call, library_text(code));
  }

  /// For a call that could not be started whole: its receives may have no sender.
  void cancel_receives() {
    for (size_t i = 0; i < std::min(requests.size(), expected_bytes.size()); ++i) {
      if (requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests[i]);
    }
  }

  // One request at a time, also after one that failed, so that MPI is done with the buffers. Open
  // MPI 4.1's MPI_Waitall returns at the first failure, the others still in flight, and under
  // MPI_THREAD_MULTIPLE spins for ever where a request has failed before the call.
  void finish() {
    std::string failure;
    for (size_t i = 0; i < requests.size(); ++i) {
      MPI_Status status;
      const int code = MPI_Wait(&requests[i], &status);
      if (failure.empty()) failure = problem_of(i, code, status);
    }
    if (!failure.empty()) fail("MPI_Wait", failure);
  }

  /// Empty, or what is wrong with a request that is over.
  std::string problem_of(size_t request, int code, const MPI_Status& status) const {
    if (request >= expected_bytes.size()) return code == MPI_SUCCESS ? "" : library_text(code);
    const int64_t expected = expected_bytes[request];
    MPI_Count bytes = MPI_UNDEFINED;
    if (code == MPI_SUCCESS) MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    if (bytes == expected) return "";
    const bool ok = code == MPI_SUCCESS;
    return fmt::format("rank {} sent {} bytes where {} were expected{}", status.MPI_SOURCE,
                       ok ? std::to_string(bytes) : "other", expected,
                       ok ? "" : ": " + library_text(code));
  }
};

class MpiCommunicator : public Communicator {
 public:
  /// Owns `comm`. No count of a call is above `limit`.
  MpiCommunicator(MPI_Comm comm, int64_t limit, std::shared_ptr<Counters> counters)
      : handle_(std::make_shared<CommHandle>(comm)),
        comm_(comm),
        limit_(limit),
        counters_(std::move(counters)) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  const Counters& counters() const override { return *counters_; }
  MPI_Comm handle() const { return comm_; }

  std::unique_ptr<Communicator> split(int64_t color, int64_t key, Traffic /*traffic*/) override {
    TORCH_CHECK(color >= 0 && color <= INT_MAX && key >= INT_MIN && key <= INT_MAX, "split: color ",
                color, " or key ", key, " does not fit an int");
    MPI_Comm group = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_, static_cast<int>(color), static_cast<int>(key), &group),
          "MPI_Comm_split");
    return std::make_unique<MpiCommunicator>(group, limit_, make_counters(counters_.get()));
  }

  Pending start_all_reduce(torch::Tensor buffer, ReduceOp op) override {
    check_all_reduce(buffer);
    const int64_t count = buffer.numel();
    return start(Collective::kAllReduce, {buffer}, {count}, {count}, [&](InFlight& in_flight) {
      for_each_piece(count, [&](int64_t first, int length) {
        in_flight.check_call(
            MPI_Iallreduce(MPI_IN_PLACE, at_byte(buffer, first * buffer.element_size()), length,
                           reduced_type(buffer), reduce_op(op), comm_, in_flight.new_request()),
            "MPI_Iallreduce");
      });
    });
  }

  Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                           const RowCounts& recv_rows) override {
    check_all_to_all(*this, in, send_rows, out, recv_rows);
    counters_->sent_bytes += rows_to_others(*this, send_rows) * row_bytes(in);
    return start(Collective::kAllToAll, {in, out}, send_rows, recv_rows, [&](InFlight& in_flight) {
      exchange_messages(in_flight, parts_of(in, send_rows), parts_of(out, recv_rows));
    });
  }

  Pending start_all_gather(torch::Tensor in, torch::Tensor out, const RowCounts& rows) override {
    check_all_gather(*this, in, out, rows);
    return start(Collective::kAllGather, {in, out}, {in.size(0)}, rows, [&](InFlight& in_flight) {
      const RowParts parts = parts_of(out, rows);
      if (std::cmp_greater(out.nbytes(), limit_)) return gather_by_broadcasts(in_flight, in, parts);
      in_flight.set_counts(parts, 1);
      in_flight.check_call(
          MPI_Iallgatherv(in.data_ptr(), static_cast<int>(in.nbytes()), MPI_BYTE, out.data_ptr(),
                          in_flight.counts.data(), in_flight.displacements.data(), MPI_BYTE, comm_,
                          in_flight.new_request()),
          "MPI_Iallgatherv");
    });
  }

  Pending start_reduce_scatter(torch::Tensor in, torch::Tensor out,
                               const RowCounts& rows) override {
    check_reduce_scatter(*this, in, out, rows);
    const RowCounts own_rows{out.size(0)};
    return start(Collective::kReduceScatter, {in, out}, rows, own_rows, [&](InFlight& in_flight) {
      const RowParts parts = parts_of(in, rows);
      if (in.numel() > limit_) return reduce_to_each(in_flight, parts, out);
      in_flight.set_counts(parts, in.element_size());
      in_flight.check_call(
          MPI_Ireduce_scatter(in.data_ptr(), out.data_ptr(), in_flight.counts.data(),
                              reduced_type(in), MPI_SUM, comm_, in_flight.new_request()),
          "MPI_Ireduce_scatter");
    });
  }

  Pending start_broadcast(torch::Tensor buffer, int64_t root) override {
    check_broadcast(*this, buffer, root);
    const RowCounts rows{buffer.dim() == 0 ? 1 : buffer.size(0)};
    return start(Collective::kBroadcast, {buffer}, rows, rows, [&](InFlight& in_flight) {
      broadcast_bytes(in_flight, {at_byte(buffer, 0), buffer.nbytes()}, static_cast<int>(root));
    });
  }

  void barrier(std::chrono::milliseconds limit) override {
    if (limit == kNever) return check(MPI_Barrier(comm_), "MPI_Barrier");
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
    const auto start = std::chrono::steady_clock::now();
    int is_over = 0;
    while (check(MPI_Test(&request, &is_over, MPI_STATUS_IGNORE), "MPI_Test"), is_over == 0) {
      if (std::chrono::steady_clock::now() - start > limit) fail_barrier(rank_, size_, limit);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void throw_if_failed() const override {}  // wait() blocks until the transfer is over

  [[noreturn]] void abort(int exit_code) override {
    aborted() = true;
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  /// A call whose requests `body` makes. If that fails, they are over before buffers are freed.
  /// The rows are those of the first buffer.
  template <class Body>
  Pending start(Collective kind, std::vector<torch::Tensor> buffers, const RowCounts& send_rows,
                const RowCounts& recv_rows, const Body& body) {
    count_call(*counters_, kind);
    auto in_flight = std::make_shared<InFlight>();
    in_flight->kind = kind;
    in_flight->sequence = sequence_++;
    in_flight->comm = handle_;
    in_flight->rank = rank_;
    in_flight->size = size_;
    in_flight->send_rows = send_rows;
    in_flight->recv_rows = recv_rows;
    in_flight->bytes_per_row = row_bytes(buffers[0]);
    auto finish = [in_flight, counters = counters_] {
      const auto start = std::chrono::steady_clock::now();
      in_flight->finish();
      const auto end = std::chrono::steady_clock::now();
      counters->wait_seconds += std::chrono::duration<double>(end - start).count();
    };
    Pending result(std::move(finish), std::move(buffers));
    try {
      body(*in_flight);
    } catch (...) {
      in_flight->cancel_receives();
      throw;
    }
    return result;
  }

  // all_to_all is made of messages. As MPI_Ialltoallv, a call that some rank skips would pair up
  // with a later one in silence, and rows that do not arrive would not be missed. Peers are taken
  // round the ring of ranks, so that ranks do not all begin with the same one.
  void exchange_messages(InFlight& in_flight, const RowParts& in, const RowParts& out) {
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + size_ - step) % size_;
      receive(in_flight, out[static_cast<size_t>(peer)], peer);
    }
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      send(in_flight, in[static_cast<size_t>(peer)], peer);
    }
    const auto own = static_cast<size_t>(rank_);
    if (!in[own].empty()) std::memcpy(out[own].data(), in[own].data(), in[own].size());
  }

  void receive(InFlight& in_flight, const std::span<char>& to, int peer) {
    for_each_piece(std::ssize(to), [&](int64_t first, int length) {
      in_flight.expected_bytes.push_back(length);
      in_flight.check_call(MPI_Irecv(to.data() + first, length, MPI_BYTE, peer, in_flight.tag(),
                                     comm_, in_flight.new_request()),
                           "MPI_Irecv");
    });
  }

  void send(InFlight& in_flight, const std::span<char>& from, int peer) {
    for_each_piece(std::ssize(from), [&](int64_t first, int length) {
      in_flight.check_call(MPI_Isend(from.data() + first, length, MPI_BYTE, peer, in_flight.tag(),
                                     comm_, in_flight.new_request()),
                           "MPI_Isend");
    });
  }

  void broadcast_bytes(InFlight& in_flight, const std::span<char>& bytes, int root) {
    for_each_piece(std::ssize(bytes), [&](int64_t first, int length) {
      in_flight.check_call(
          MPI_Ibcast(bytes.data() + first, length, MPI_BYTE, root, comm_, in_flight.new_request()),
          "MPI_Ibcast");
    });
  }

  /// all_gather beyond the limit.
  void gather_by_broadcasts(InFlight& in_flight, const torch::Tensor& in, const RowParts& out) {
    const std::span<char>& own = out[static_cast<size_t>(rank_)];
    if (!own.empty()) std::memcpy(own.data(), in.data_ptr(), own.size());
    for (int root = 0; root < size_; ++root) {
      broadcast_bytes(in_flight, out[static_cast<size_t>(root)], root);
    }
  }

  /// reduce_scatter beyond the limit.
  void reduce_to_each(InFlight& in_flight, const RowParts& in, const torch::Tensor& out) {
    const int64_t bytes = out.element_size();
    for (int root = 0; root < size_; ++root) {
      const std::span<char>& part = in[static_cast<size_t>(root)];
      for_each_piece(std::ssize(part) / bytes, [&](int64_t first, int length) {
        in_flight.check_call(
            MPI_Ireduce(part.data() + first * bytes,
                        root == rank_ ? at_byte(out, first * bytes) : nullptr, length,
                        reduced_type(out), MPI_SUM, root, comm_, in_flight.new_request()),
            "MPI_Ireduce");
      });
    }
  }

  /// body(first, length) of pieces that MPI's counts hold; once for nothing.
  template <class Body>
  void for_each_piece(int64_t total, const Body& body) const {
    int64_t first = 0;
    do {
      const int64_t length = std::min(limit_, total - first);
      body(first, static_cast<int>(length));
      first += length;
    } while (first < total);
  }

  std::shared_ptr<CommHandle> handle_;
  MPI_Comm comm_;
  int64_t limit_;
  int rank_ = 0;
  int size_ = 1;
  int64_t sequence_ = 0;
  std::shared_ptr<Counters> counters_;  // a Pending may outlive the communicator
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(int64_t limit) {
  initialise_once();
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  return std::make_unique<MpiCommunicator>(copy, limit, make_counters());
}

LocalRank local_rank_of(Communicator& comm) {
  const auto* mpi = dynamic_cast<const MpiCommunicator*>(&comm);
  if (mpi == nullptr) {
    TORCH_CHECK(comm.size() == 1, "local_rank_of: needs an MPI communicator, or one rank");
    return {};
  }
  MPI_Comm local = MPI_COMM_NULL;
  check(MPI_Comm_split_type(mpi->handle(), MPI_COMM_TYPE_SHARED, static_cast<int>(comm.rank()),
                            MPI_INFO_NULL, &local),
        "MPI_Comm_split_type");
  const MpiCommunicator machine(local, INT_MAX, make_counters());
  return {machine.rank(), machine.size()};
}

}  // namespace shoal
