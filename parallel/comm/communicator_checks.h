#pragma once

#include <c10/util/SmallVector.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <span>

#include "parallel/comm/communicator.h"

namespace shoal {

/// Argument checks that every Communicator shares, with equal messages, by TORCH_CHECK:
/// `all_to_all: rank 3 sends 5 rows in total but tensor has [4, 512]`.

enum class Collective : uint8_t { kAllReduce, kAllToAll, kAllGather, kReduceScatter, kBroadcast };

/// `all_reduce`, `all_to_all`, ...
const char* name_of(Collective kind);

/// Adds one call to the counters.
void count_call(Communicator::Counters& counters, Collective kind);

/// Bytes of one row, also of a tensor without rows.
int64_t row_bytes(const torch::Tensor& tensor);

/// Each rank's bytes in a buffer. Up to 16 ranks need no allocation.
using RowParts = c10::SmallVector<std::span<char>, 16>;
RowParts parts_of(const torch::Tensor& buffer, const RowCounts& rows);

/// The buffers that a kind of communicator accepts.
struct BufferRules {
  /// Without one: any device, the same for all buffers of a call.
  std::optional<c10::Device> device = c10::Device(c10::DeviceType::CPU);
  bool reduces_bfloat16 = false;
};

/// A communicator and the buffers it accepts; CPU buffers by default.
struct Caller {
  Caller(const Communicator& comm) : comm(comm) {}
  Caller(const Communicator& comm, const BufferRules& rules) : comm(comm), rules(rules) {}
  const Communicator& comm;
  BufferRules rules = {};
};

void check_all_reduce(const torch::Tensor& buffer, const BufferRules& rules = {});
void check_all_to_all(const Caller& caller, const torch::Tensor& in, const RowCounts& send_rows,
                      const torch::Tensor& out, const RowCounts& recv_rows);
void check_all_gather(const Caller& caller, const torch::Tensor& in, const torch::Tensor& out,
                      const RowCounts& rows);
void check_reduce_scatter(const Caller& caller, const torch::Tensor& in, const torch::Tensor& out,
                          const RowCounts& rows);
void check_broadcast(const Caller& caller, const torch::Tensor& buffer, int64_t root);

/// Number of rows sent to other ranks.
int64_t rows_to_others(const Communicator& comm, const RowCounts& send_rows);

}  // namespace shoal
