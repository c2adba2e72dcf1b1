#include "parallel/comm/communicator_checks.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace shoal {
namespace {

using Counters = Communicator::Counters;

struct Kind {
  const char* name;
  int64_t Counters::*count;
};

/// By the values of Collective.
constexpr Kind kKinds[] = {{"all_reduce", &Counters::all_reduce},
                           {"all_to_all", &Counters::all_to_all},
                           {"all_gather", &Counters::all_gather},
                           {"reduce_scatter", &Counters::reduce_scatter},
                           {"broadcast", &Counters::broadcast}};

uint64_t mixed(uint64_t hash, uint64_t next) {
  hash = (hash ^ next) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

void check_buffer(Collective kind, const torch::Tensor& tensor, const BufferRules& rules) {
  const char* call = name_of(kind);
  TORCH_CHECK(tensor.defined(), call, ": the tensor is undefined");
  TORCH_CHECK(!rules.device || tensor.device() == *rules.device, call, ": tensor is on ",
              tensor.device(), " but this communicator moves memory of ",
              rules.device.value_or(tensor.device()));
  TORCH_CHECK(tensor.is_contiguous(), call, ": tensor ", tensor.sizes(), " with strides ",
              tensor.strides(), " is not contiguous");
  const auto dtype = tensor.scalar_type();
  TORCH_CHECK(dtype == torch::kFloat || dtype == torch::kDouble || dtype == torch::kLong ||
                  dtype == torch::kByte || dtype == torch::kBFloat16,
              call, ": cannot move ", dtype,
              "; expected float32, float64, int64, uint8 or bfloat16");
}

void check_reduced(Collective kind, const torch::Tensor& tensor, const BufferRules& rules) {
  TORCH_CHECK(
      rules.reduces_bfloat16 || !tensor.is_cpu() || tensor.scalar_type() != torch::kBFloat16,
      name_of(kind), ": bfloat16 is moved but not reduced on CPU; reduce in float32");
}

void check_rows(Collective kind, const Caller& caller, const torch::Tensor& in,
                const torch::Tensor& out) {
  check_buffer(kind, in, caller.rules);
  check_buffer(kind, out, caller.rules);
  TORCH_CHECK(in.device() == out.device(), name_of(kind), ": one tensor is on ", in.device(),
              ", the other on ", out.device());
  TORCH_CHECK(in.dim() > 0 && out.dim() > 0 && in.sizes().slice(1) == out.sizes().slice(1) &&
                  in.scalar_type() == out.scalar_type(),
              name_of(kind), ": rows of ", in.sizes(), " (", in.scalar_type(), ") and of ",
              out.sizes(), " (", out.scalar_type(), ") differ");
}

void check_counts(const Communicator& comm, Collective kind, const RowCounts& rows) {
  TORCH_CHECK(static_cast<int64_t>(rows.size()) == comm.size(), name_of(kind), ": ", rows.size(),
              " counts for ", comm.size(), " ranks");
  for (const int64_t count : rows) {
    TORCH_CHECK(count >= 0, name_of(kind), ": rank ", comm.rank(), " has the row count ", count);
  }
}

void check_total(const Communicator& comm, Collective kind, const char* verb, int64_t rows,
                 const torch::Tensor& tensor) {
  TORCH_CHECK(tensor.size(0) == rows, name_of(kind), ": rank ", comm.rank(), " ", verb, " ", rows,
              " rows in total but tensor has ", tensor.sizes());
}

}  // namespace

const char* name_of(Collective kind) { return kKinds[static_cast<size_t>(kind)].name; }

std::shared_ptr<Counters> make_counters(const Counters* parent) {
  auto counters = std::make_shared<Counters>();
  counters->order = parent != nullptr ? parent->order : std::make_shared<Communicator::CallOrder>();
  counters->group = parent != nullptr ? ++counters->order->num_groups : 0;
  return counters;
}

void count_call(Counters& counters, Collective kind) {
  ++(counters.*kKinds[static_cast<size_t>(kind)].count);
  uint64_t& hash = counters.order->hash;
  hash = mixed(mixed(hash, counters.group), static_cast<uint64_t>(kind));
}

int64_t row_bytes(const torch::Tensor& tensor) {
  if (tensor.dim() == 0) return tensor.element_size();
  return c10::multiply_integers(tensor.sizes().slice(1)) * tensor.element_size();
}

RowParts parts_of(const torch::Tensor& buffer, const RowCounts& rows) {
  const int64_t bytes_per_row = row_bytes(buffer);
  auto* next = static_cast<char*>(buffer.data_ptr());
  RowParts parts;
  for (const int64_t count : rows) {
    parts.emplace_back(next, static_cast<size_t>(count * bytes_per_row));
    next += count * bytes_per_row;
  }
  return parts;
}

void check_all_reduce(const torch::Tensor& buffer, const BufferRules& rules) {
  check_buffer(Collective::kAllReduce, buffer, rules);
  check_reduced(Collective::kAllReduce, buffer, rules);
}

void check_all_to_all(const Caller& caller, const torch::Tensor& in, const RowCounts& send_rows,
                      const torch::Tensor& out, const RowCounts& recv_rows) {
  constexpr Collective kKind = Collective::kAllToAll;
  check_rows(kKind, caller, in, out);
  check_counts(caller.comm, kKind, send_rows);
  check_counts(caller.comm, kKind, recv_rows);
  check_total(caller.comm, kKind, "sends", sum(send_rows), in);
  check_total(caller.comm, kKind, "receives", sum(recv_rows), out);
  const size_t own = static_cast<size_t>(caller.comm.rank());
  TORCH_CHECK(send_rows[own] == recv_rows[own], "all_to_all: rank ", caller.comm.rank(),
              " sends itself ", send_rows[own], " rows but receives ", recv_rows[own]);
}

void check_all_gather(const Caller& caller, const torch::Tensor& in, const torch::Tensor& out,
                      const RowCounts& rows) {
  constexpr Collective kKind = Collective::kAllGather;
  check_rows(kKind, caller, in, out);
  check_counts(caller.comm, kKind, rows);
  check_total(caller.comm, kKind, "gives", rows[static_cast<size_t>(caller.comm.rank())], in);
  check_total(caller.comm, kKind, "receives", sum(rows), out);
}

void check_reduce_scatter(const Caller& caller, const torch::Tensor& in, const torch::Tensor& out,
                          const RowCounts& rows) {
  constexpr Collective kKind = Collective::kReduceScatter;
  check_rows(kKind, caller, in, out);
  check_reduced(kKind, in, caller.rules);
  check_counts(caller.comm, kKind, rows);
  check_total(caller.comm, kKind, "gives", sum(rows), in);
  check_total(caller.comm, kKind, "receives", rows[static_cast<size_t>(caller.comm.rank())], out);
}

void check_broadcast(const Caller& caller, const torch::Tensor& buffer, int64_t root) {
  check_buffer(Collective::kBroadcast, buffer, caller.rules);
  TORCH_CHECK(root >= 0 && root < caller.comm.size(), "broadcast: root ", root,
              " is not a rank of ", caller.comm.size());
}

void fail_barrier(int64_t rank, int64_t size, std::chrono::milliseconds limit) {
  throw CommError(fmt::format("barrier: rank {} of {} has waited {} s for the other ranks", rank,
                              size, std::chrono::duration<double>(limit).count()),
                  "a rank may have died or may be held up; look at the ranks' logs; once all ranks "
                  "are connected, run.hang_timeout sets how long one may take");
}

int64_t rows_to_others(const Communicator& comm, const RowCounts& send_rows) {
  return sum(send_rows) - send_rows[static_cast<size_t>(comm.rank())];
}

}  // namespace shoal
