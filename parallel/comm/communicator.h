#pragma once

#include <torch/types.h>

#include <climits>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace shoal {

/// Rows per rank, one entry a rank of the communicator.
using RowCounts = std::vector<int64_t>;
int64_t sum(const RowCounts& rows);

enum class ReduceOp { kSum, kMax, kMin };

/// A collective that has been started. Move-only; owns its buffers; waits in its destructor.
/// On CPU, wait() blocks until the buffers may be used; on a stream-ordered backend it makes the
/// tensor's current stream wait.
class Pending {
 public:
  Pending() = default;
  /// `finish` completes the call; the tensors live until then.
  Pending(std::function<void()> finish, std::vector<torch::Tensor> buffers);
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&& other) noexcept;
  Pending(const Pending&) = delete;
  ~Pending();
  /// Idempotent. Throws CommError if the collective failed. The destructor terminates instead,
  /// unless another exception is already unwinding the stack.
  void wait();

 private:
  std::function<void()> finish_;
  std::vector<torch::Tensor> buffers_;
};

/// A group of ranks that call the same collectives in the same order.
///
/// Buffers are contiguous and on one device; dimension 0 counts rows, a row may have any shape.
/// dtypes: float32, float64, int64, uint8; bfloat16 moves rows but is not reduced on CPU.
/// Zero rows are legal everywhere. Every start_* must be matched on all ranks in the same order.
/// Throws TORCH_CHECK on shapes that do not fit the counts, CommError from the library.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  /// Collective. Ranks of equal `color` form a group, ordered by `key`, then by rank.
  virtual std::unique_ptr<Communicator> split(int64_t color, int64_t key) = 0;

  /// In place, equal bits on all ranks.
  virtual Pending start_all_reduce(torch::Tensor buffer, ReduceOp op) = 0;
  /// Sends send_rows[r] rows of `in`, in rank order, to rank r; `out` [sum(recv_rows), ...]
  /// holds what arrives, by source rank, then source order.
  virtual Pending start_all_to_all(torch::Tensor in, const RowCounts& send_rows, torch::Tensor out,
                                   const RowCounts& recv_rows) = 0;
  /// `out` [sum(rows), ...] holds every rank's `in` [rows[rank], ...] in rank order.
  virtual Pending start_all_gather(torch::Tensor in, torch::Tensor out, const RowCounts& rows) = 0;
  /// `out` [rows[rank], ...] holds this rank's part of the sum over ranks of `in` [sum(rows), ...].
  virtual Pending start_reduce_scatter(torch::Tensor in, torch::Tensor out,
                                       const RowCounts& rows) = 0;
  virtual Pending start_broadcast(torch::Tensor buffer, int64_t root) = 0;
  virtual void barrier() = 0;
  /// Throws CommError if the group has failed. On a stream-ordered backend a failed transfer leaves
  /// its buffers unspecified: call this after the host waited for the GPU and before it uses them.
  virtual void throw_if_failed() const = 0;
  /// Ends the whole job at once with this exit code; used where peers would otherwise hang.
  [[noreturn]] virtual void abort(int exit_code) = 0;
  /// How many collectives were started, by kind, since construction (tests and the log).
  struct Counters {
    int64_t all_reduce = 0, all_to_all = 0, all_gather = 0, reduce_scatter = 0, broadcast = 0;
    int64_t sent_bytes = 0;   ///< payload handed to other ranks, self excluded, by all_to_all
    double wait_seconds = 0;  ///< time spent inside wait()
    uint64_t order_hash = 0;  ///< hash of the kinds of calls in their order; equal on all ranks
  };
  virtual const Counters& counters() const = 0;
};

// Blocking forms: start + wait.
void all_reduce(Communicator& comm, torch::Tensor buffer, ReduceOp op = ReduceOp::kSum);
void broadcast(Communicator& comm, torch::Tensor buffer, int64_t root);
/// Each rank's bytes, in rank order; lengths may differ. For control data, not for tensors.
std::vector<std::string> gather_text(Communicator& comm, const std::string& text);
/// The lines of all ranks in ascending order, each once. A line has no line end in it.
std::vector<std::string> gather_lines(Communicator& comm, const std::vector<std::string>& lines);
/// The bytes of rank `root` on every rank; what others give is ignored. For control data.
std::string broadcast_text(Communicator& comm, std::string text, int64_t root = 0);

/// The communicator of a process that runs alone. Takes tensors of any device.
std::unique_ptr<Communicator> make_self_communicator();
/// Collective. A copy of MPI_COMM_WORLD; initialises MPI (thread level MULTIPLE) on the first call
/// and finalises it when the process exits normally. Throws CommError if the library refuses. CPU
/// tensors only. Calls with counts above `limit` are split into several (tests lower it).
std::unique_ptr<Communicator> make_mpi_communicator(int64_t limit = INT_MAX);

/// This process among those on its machine.
struct LocalRank {
  int64_t rank = 0;
  int64_t size = 1;
};

/// Collective. Ranks of `comm` that share memory, by MPI_Comm_split_type; {0, 1} for the
/// communicator of a process that runs alone. Throws TORCH_CHECK for other kinds.
LocalRank local_rank_of(Communicator& comm);

}  // namespace shoal
