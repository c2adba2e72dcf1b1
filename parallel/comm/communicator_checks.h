#pragma once

#include <c10/util/SmallVector.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "parallel/comm/communicator.h"

namespace shoal {

/// Helpers of all Communicators (MPI, NCCL, one process): argument checks and call counters.

enum class Collective : uint8_t { kAllReduce, kAllToAll, kAllGather, kReduceScatter, kBroadcast };

/// Returns the name used in messages: `all_reduce`, `all_to_all`, ...
const char* name_of(Collective kind);

/// Returns the counters of a communicator split from one with the counters `parent`; null: of a new
/// one. All that are split from one share its CallOrder, a hash of their calls by group and kind:
/// StepControl compares it over ranks, so that swapped calls of two groups are found.
std::shared_ptr<Communicator::Counters> make_counters(
    const Communicator::Counters* parent = nullptr);

/// Adds one call, when it starts, to the counter of its kind and to the CallOrder.
void count_call(Communicator::Counters& counters, Collective kind);

/// Returns the bytes of one row (one index of dimension 0), also for a tensor of zero rows.
int64_t row_bytes(const torch::Tensor& tensor);

/// Views of a buffer's bytes, one for each rank. Up to 16 ranks need no allocation.
using RowParts = c10::SmallVector<std::span<char>, 16>;
/// Cuts a buffer into parts of rows[r] rows for each rank r, in rank order.
RowParts parts_of(const torch::Tensor& buffer, const RowCounts& rows);

/// The buffers that a kind of communicator accepts.
struct BufferRules {
  /// Required device; unset: any device, the same for all buffers of a call.
  std::optional<c10::Device> device = c10::Device(c10::DeviceType::CPU);
  bool reduces_bfloat16 = false;  ///< true if bfloat16 buffers on the CPU may be reduced
};

/// The communicator that is called and the buffers it accepts; CPU buffers by default.
struct Caller {
  Caller(const Communicator& comm, const BufferRules& rules = {}) : comm(comm), rules(rules) {}
  const Communicator& comm;
  BufferRules rules;
};

// Each throws TORCH_CHECK if the arguments of its collective do not fit the group or each other:
// `all_to_all: rank 3 sends 5 rows in total but tensor has [4, 512]`. all_reduce fits every group.
void check_all_reduce(const torch::Tensor& buffer, const BufferRules& rules = {});
void check_all_to_all(const Caller& caller, const torch::Tensor& in, const RowCounts& send_rows,
                      const torch::Tensor& out, const RowCounts& recv_rows);
void check_all_gather(const Caller& caller, const torch::Tensor& in, const torch::Tensor& out,
                      const RowCounts& rows);
void check_reduce_scatter(const Caller& caller, const torch::Tensor& in, const torch::Tensor& out,
                          const RowCounts& rows);
void check_broadcast(const Caller& caller, const torch::Tensor& buffer, int64_t root);

/// Throws the CommError of a barrier that another rank has not reached within `limit`.
[[noreturn]] void fail_barrier(int64_t rank, int64_t size, std::chrono::milliseconds limit);

/// Returns the number of rows that this rank sends to other ranks.
int64_t rows_to_others(const Communicator& comm, const RowCounts& send_rows);

}  // namespace shoal
