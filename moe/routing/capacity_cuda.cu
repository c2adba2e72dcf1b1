#include <cuda_runtime.h>

#include "moe/routing/capacity_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

// T tokens  K choices per token  U units  N = T K choices  C chunks of choices
//
// A warp walks through its chunk 32 choices at a time and loads ahead. What a unit has before them
// is in shared memory; lanes of the same unit are ranked by their place in the warp.
namespace shoal::capacity_cuda {
namespace {

using device::kAllLanes;
using device::kWarp;

__device__ int lane() { return static_cast<int>(threadIdx.x); }

struct Run {
  int64_t first, count;
};

__device__ Run own_run(const Chunks& chunks) {
  const int64_t first = int64_t{blockIdx.x} * chunks.length;
  const int64_t left = chunks.num_choices - first;
  return {first, left < chunks.length ? left : chunks.length};
}

/// How many of this unit come before this lane's choice, which is added to `before_U`.
template <class Count>
__device__ Count enter(int unit, Count* before_U) {
  const unsigned peers = __match_any_sync(kAllLanes, unit);
  const int rank = __popc(peers & ((1u << lane()) - 1u));
  const Count before = unit >= 0 ? before_U[unit] : Count(0);
  __syncwarp();
  if (unit >= 0 && rank == 0) before_U[unit] = before + static_cast<Count>(__popc(peers));
  __syncwarp();
  return before + static_cast<Count>(rank);
}

__device__ int checked_unit(int64_t unit, int num_units) {
  device::require(unit < num_units);
  return unit < 0 ? -1 : static_cast<int>(unit);
}

/// Tokens of the run that have a choice left.
__device__ int64_t count_tokens(const Run& run, const Limit& job) {
  int num_tokens = 0;
  for (int64_t token = lane(); token < run.count / job.k; token += kWarp) {
    bool has_choice = false;
    for (int64_t i = 0; i < job.k; ++i) {
      has_choice = has_choice || job.unit_N[run.first + token * job.k + i] >= 0;
    }
    num_tokens += has_choice ? 1 : 0;
  }
  return __reduce_add_sync(kAllLanes, num_tokens);
}

/// The choice, counted in the group, that asks as the place-th.
__device__ int64_t choice_at(int64_t place, const Run& run, int64_t length, const Limit& job) {
  const Order& order = job.order;
  if (order.choice != nullptr) return order.choice[int64_t{blockIdx.x} * length + place];
  if (!order.slot_major) return place;
  const int64_t num_tokens = run.count / job.k;
  const int64_t slot = place / num_tokens;
  int64_t token = place - slot * num_tokens;
  if (order.token != nullptr) token = order.token[int64_t{blockIdx.x} * (length / job.k) + token];
  return token * job.k + slot;
}

/// The unit that each lane's choice asks for; none after the end of the run.
struct Asking {
  int64_t choice, unit;
};

__device__ Asking asking_at(int64_t place, const Run& run, int64_t length, const Limit& job) {
  if (place >= run.count) return {-1, -1};
  const int64_t choice = run.first + choice_at(place, run, length, job);
  return {choice, job.unit_N[choice]};
}

__global__ void limit_kernel(Chunks chunks, Limit job) {
  extern __shared__ int asked_U[];
  const Run run = own_run(chunks);
  for (int u = lane(); u < chunks.num_units; u += kWarp) asked_U[u] = 0;
  __syncwarp();
  const int64_t limit = job.rule.rows_for(count_tokens(run, job) * job.k);
  Asking next = asking_at(lane(), run, chunks.length, job);
  for (int64_t first = 0; first < run.count; first += kWarp) {
    const Asking asking = next;
    next = asking_at(first + kWarp + lane(), run, chunks.length, job);
    const int unit = checked_unit(asking.unit, chunks.num_units);
    const int before = enter(unit, asked_U);
    if (asking.choice >= 0) job.kept_unit_N[asking.choice] = before < limit ? unit : -1;
  }
  for (int u = lane(); u < chunks.num_units; u += kWarp) {
    const int64_t kept = asked_U[u] < limit ? asked_U[u] : limit;
    job.count_UC[int64_t{u} * chunks.count + blockIdx.x] = job.padded ? limit : kept;
  }
}

__global__ void count_kernel(Chunks chunks, const int64_t* unit_N, int64_t* count_UC) {
  extern __shared__ int count_U[];
  const Run run = own_run(chunks);
  for (int u = lane(); u < chunks.num_units; u += kWarp) count_U[u] = 0;
  __syncwarp();
  for (int64_t i = lane(); i < run.count; i += kWarp) {
    const int unit = checked_unit(unit_N[run.first + i], chunks.num_units);
    if (unit >= 0) atomicAdd(count_U + unit, 1);
  }
  __syncwarp();
  for (int u = lane(); u < chunks.num_units; u += kWarp) {
    count_UC[int64_t{u} * chunks.count + blockIdx.x] = count_U[u];
  }
}

__global__ void place_kernel(Chunks chunks, Place job) {
  extern __shared__ int64_t next_U[];
  const Run run = own_run(chunks);
  for (int u = lane(); u < chunks.num_units; u += kWarp) {
    const int64_t i = int64_t{u} * chunks.count + blockIdx.x;
    next_U[u] = job.end_UC[i] - job.count_UC[i];
  }
  __syncwarp();
  const auto unit_at = [&](int64_t place) {
    return place < run.count ? job.unit_N[run.first + place] : int64_t{-1};
  };
  int64_t next = unit_at(lane());
  for (int64_t first = 0; first < run.count; first += kWarp) {
    const int unit = checked_unit(next, chunks.num_units);
    next = unit_at(first + kWarp + lane());
    const int64_t row = enter(unit, next_U);
    if (unit < 0) continue;
    const int64_t choice = run.first + first + lane();
    job.token_A[row] = choice / job.k;
    job.choice_A[row] = choice;
  }
}

}  // namespace

void launch_limit(const Chunks& chunks, const Limit& job, CUstream_st* stream) {
  if (chunks.count == 0) return;
  const size_t shared = static_cast<size_t>(chunks.num_units) * sizeof(int);
  limit_kernel<<<static_cast<unsigned>(chunks.count), kWarp, shared, stream>>>(chunks, job);
}

void launch_count(const Chunks& chunks, const int64_t* unit_N, int64_t* count_UC,
                  CUstream_st* stream) {
  if (chunks.count == 0) return;
  const size_t shared = static_cast<size_t>(chunks.num_units) * sizeof(int);
  count_kernel<<<static_cast<unsigned>(chunks.count), kWarp, shared, stream>>>(chunks, unit_N,
                                                                               count_UC);
}

void launch_place(const Chunks& chunks, const Place& job, CUstream_st* stream) {
  if (chunks.count == 0) return;
  const size_t shared = static_cast<size_t>(chunks.num_units) * sizeof(int64_t);
  place_kernel<<<static_cast<unsigned>(chunks.count), kWarp, shared, stream>>>(chunks, job);
}

}  // namespace shoal::capacity_cuda
