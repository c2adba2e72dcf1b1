#pragma once

#include <torch/types.h>

#include <chrono>
#include <climits>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace shoal {

/// Numbers of rows: entry r belongs to rank r of the communicator.
using RowCounts = std::vector<int64_t>;
int64_t sum(const RowCounts& rows);

enum class ReduceOp { kSum, kMax, kMin };

/// What the collectives of a group carry. With NCCL each kind has a CUDA stream of its own, so that
/// an exchange does not queue behind sums of gradients. No effect on other backends.
enum class Traffic : uint8_t {
  kControl,    ///< sums of losses and statistics
  kExchange,   ///< rows on their way to units (experts) and back; scheduled first on the GPU
  kGradients,  ///< sums of gradients, and weights that are gathered after the update
};

/// A time limit that never ends a wait.
inline constexpr std::chrono::milliseconds kNever = std::chrono::milliseconds::max();

/// A collective in flight, like torch.distributed's Work. Keeps its buffers alive; move-only; the
/// destructor and move assignment wait for the collective.
/// With NCCL wait() does not block but makes the current CUDA stream wait.
class Pending {
 public:
  Pending() = default;
  /// `finish`, called by wait(), completes the collective; `buffers` live until then.
  Pending(std::function<void()> finish, std::vector<torch::Tensor> buffers);
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&& other) noexcept;
  Pending(const Pending&) = delete;
  ~Pending();
  /// Blocks until the buffers may be used; idempotent. Throws CommError if the collective failed;
  /// the destructor then ends the program, unless an exception is already unwinding the stack.
  void wait();

 private:
  std::function<void()> finish_;
  std::vector<torch::Tensor> buffers_;
};

/// A group of ranks, like torch.distributed's ProcessGroup, over MPI, NCCL or one process.
///
/// Every rank must make the same start_* calls in the same order. There is one order of the calls
/// of all groups: two ranks that are both in groups A and B make their calls of A and of B in the
/// same sequence, also where two threads of a rank make them. StepControl checks this in every
/// step.
/// - MPI and the threads of tests: each call makes progress by itself. Only the check finds two
///   groups' calls that are swapped.
/// - NCCL: all groups of a process share one GPU. Groups of one Traffic share a CUDA stream: a call
///   starts when the one before it is over. Groups of different Traffic start in the order of the
///   calls and run side by side. Ranks that swap two groups' calls wait for each other forever.
///
/// Buffers are contiguous and on one device. Dimension 0 counts rows; a row may have any shape;
/// zero rows are legal. dtypes: float32, float64, int64, uint8; bfloat16, but no sums on CPUs.
/// Throws TORCH_CHECK on shapes that do not fit the counts, CommError if the library fails.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;  ///< this process's index in the group, from 0
  virtual int64_t size() const = 0;
  /// Collective. Returns this rank's group: ranks of equal `color`, by `key`, then by rank. With
  /// NCCL waits for all transfers of this group first.
  virtual std::unique_ptr<Communicator> split(int64_t color, int64_t key,
                                              Traffic traffic = Traffic::kControl) = 0;

  /// Reduces `buffer` over ranks in place, to equal bits on all of them.
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
  /// Copies `buffer` of rank `root` into that of every rank.
  virtual Pending start_broadcast(torch::Tensor buffer, int64_t root) = 0;
  /// Blocks until every rank has called it. Throws CommError after `limit`; the group is then of no
  /// further use.
  virtual void barrier(std::chrono::milliseconds limit = kNever) = 0;
  /// Throws CommError if the group has failed. With NCCL a failed transfer leaves its buffers
  /// unspecified: call this after the host has waited for the GPU and before it uses the results.
  virtual void throw_if_failed() const = 0;
  /// Ends the whole job at once with this exit code; used where peers would otherwise hang.
  [[noreturn]] virtual void abort(int exit_code) = 0;
  /// The collectives that a process has started, over all groups split from one communicator. As
  /// calls have one order, no two threads add to it at once.
  struct CallOrder {
    /// Hash of each call's group and kind, in order; equal on ranks that split and call alike.
    uint64_t hash = 0xcbf29ce484222325;
    uint64_t num_groups = 0;  ///< groups that were split off
  };
  /// Numbers of collectives started since construction, by kind, for tests and the log.
  struct Counters {
    int64_t all_reduce = 0, all_to_all = 0, all_gather = 0, reduce_scatter = 0, broadcast = 0;
    int64_t sent_bytes = 0;            ///< bytes that all_to_all calls sent to other ranks
    double wait_seconds = 0;           ///< time spent inside wait(); with NCCL not counted
    uint64_t group = 0;                ///< the group in `order`; equal on its ranks
    std::shared_ptr<CallOrder> order;  ///< shared with all groups split from the same communicator
  };
  virtual const Counters& counters() const = 0;
};

// Start a collective and wait for it.
void all_reduce(Communicator& comm, torch::Tensor buffer, ReduceOp op = ReduceOp::kSum);
void broadcast(Communicator& comm, torch::Tensor buffer, int64_t root);
/// Collective. Returns every rank's bytes, in rank order; lengths may differ. For control data.
std::vector<std::string> gather_text(Communicator& comm, const std::string& text);
/// Collective. Returns the lines of all ranks, each once, ascending. Lines contain no "\n".
std::vector<std::string> gather_lines(Communicator& comm, const std::vector<std::string>& lines);
/// Collective. Returns the text of rank `root`; other ranks' texts are ignored. For control data.
std::string broadcast_text(Communicator& comm, std::string text, int64_t root = 0);

/// Returns the communicator of a process that runs alone. Accepts tensors of any device.
std::unique_ptr<Communicator> make_self_communicator();
/// Collective. Returns a copy of MPI_COMM_WORLD, for CPU tensors. Initialises MPI (thread level
/// MULTIPLE) on the first call, finalises it when the process exits normally. `limit`: largest
/// count of an MPI call; larger ones are split (tests lower it). Throws CommError if MPI refuses.
std::unique_ptr<Communicator> make_mpi_communicator(int64_t limit = INT_MAX);

/// A process's index among the processes on its machine, and their number.
struct LocalRank {
  int64_t rank = 0;
  int64_t size = 1;
};

/// Collective. Returns this process's place among the ranks of `comm` that share its memory
/// (MPI_Comm_split_type); {0, 1} for a communicator of one rank. TORCH_CHECK for other kinds.
LocalRank local_rank_of(Communicator& comm);

}  // namespace shoal
