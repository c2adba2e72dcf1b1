// Must not fuse: which choices are dropped is the CPU's decision, to the last one.
#include <cuda_runtime.h>

#include <algorithm>

#include "moe/routing/capacity_cuda.h"
#include "runtime/kernels/row_kernels.cuh"

// T tokens  K choices per token  U units  N = T K choices  C chunks of choices
//
// A block takes a chunk. Its choices, in the order in which they ask, are split among the warps,
// which walk through them 32 at a time and load ahead. What a unit has before them is in shared
// memory: first the choices of earlier warps, counted before the walk, then also the warp's own.
// Lanes of the same unit are ranked by their place in the warp.
namespace shoal::capacity_cuda {
namespace {

using device::kAllLanes;
using device::kWarp;

constexpr int kMostWarps = 32;
constexpr int kWarpChoices = 128;       // at least, if the block has several warps
constexpr int kSharedBytes = 47 << 10;  // for the counts; the rest of 48 KiB is for single values

__device__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ int num_threads() { return static_cast<int>(blockDim.x); }

/// The block's chunk, and this warp's part of it: places [begin, end) of its order.
struct Run {
  int64_t first;
  int count, begin, end;

  __device__ explicit Run(const Chunks& chunks) : first(int64_t{blockIdx.x} * chunks.length) {
    const int64_t left = chunks.num_choices - first;
    count = left < chunks.length ? static_cast<int>(left) : chunks.length;
    const int length = (count + num_threads() - 1) / num_threads() * kWarp;
    begin = thread() / kWarp * length;
    end = count - begin < length ? count : begin + length;
  }
};

/// How many of this unit come before this lane's choice, which is added to `before_U`.
__device__ int enter(int unit, int* before_U) {
  const unsigned peers = __match_any_sync(kAllLanes, unit);
  const int rank = __popc(peers & ((1u << lane()) - 1u));
  const int before = unit >= 0 ? before_U[unit] : 0;
  __syncwarp();
  if (unit >= 0 && rank == 0) before_U[unit] = before + __popc(peers);
  __syncwarp();
  return before + rank;
}

__device__ int checked_unit(int64_t unit, int num_units) {
  device::require(unit < num_units);
  return unit < 0 ? -1 : static_cast<int>(unit);
}

/// Sets the counts of each unit [warps, U] to its choices in the parts of earlier warps and returns
/// this warp's. unit_at(place): the unit of a choice of the run, or -1.
template <class UnitAt>
__device__ int* count_earlier(const Run& run, int num_units, int* count_WU, const UnitAt& unit_at) {
  const int warps = num_threads() / kWarp;
  int* own_U = count_WU + thread() / kWarp * num_units;
  for (int i = thread(); i < warps * num_units; i += num_threads()) count_WU[i] = 0;
  __syncthreads();
  for (int place = run.begin + lane(); place < run.end; place += kWarp) {
    const int unit = unit_at(place);
    if (unit >= 0) atomicAdd(own_U + unit, 1);
  }
  __syncthreads();
  for (int u = thread(); u < num_units; u += num_threads()) {
    int earlier = 0;
    for (int i = u; i < warps * num_units; i += num_units) {
      const int own = count_WU[i];
      count_WU[i] = earlier;
      earlier += own;
    }
  }
  __syncthreads();
  return own_U;
}

/// Adds the tokens of the run that have a choice left.
__device__ void count_tokens(const Run& run, const Chunks& chunks, const int64_t* unit_N,
                             int* num_tokens) {
  int own = 0;
  for (int first = thread() * chunks.k; first < run.count; first += num_threads() * chunks.k) {
    bool has_choice = false;
    for (int i = 0; i < chunks.k; ++i)
      has_choice = has_choice || unit_N[run.first + first + i] >= 0;
    own += has_choice ? 1 : 0;
  }
  own = __reduce_add_sync(kAllLanes, own);
  if (lane() == 0) atomicAdd(num_tokens, own);
}

/// The choice, counted in the group, that asks as the place-th.
__device__ int choice_at(int place, const Run& run, const Chunks& chunks, const Order& order) {
  const int64_t group = blockIdx.x;
  if (order.choice != nullptr) return static_cast<int>(order.choice[group * chunks.length + place]);
  if (!order.slot_major) return place;
  const int num_tokens = run.count / chunks.k, slot = place / num_tokens;
  int token = place - slot * num_tokens;
  if (order.token != nullptr) {
    token = static_cast<int>(order.token[group * (chunks.length / chunks.k) + token]);
  }
  return token * chunks.k + slot;
}

/// The unit that each lane's choice asks for; none after the end of the warp's part.
struct Asking {
  int64_t choice;
  int unit;
};

// With launch bounds nvcc spills; tests/machine_code.py sees to it that the registers suffice.
__global__ void limit_kernel(Chunks chunks, Limit job) {
  extern __shared__ int count_WU[];
  __shared__ int num_tokens;
  __shared__ int64_t limit;
  const Run run(chunks);
  const auto asking_at = [&](int place) -> Asking {
    if (place >= run.end) return {-1, -1};
    const int64_t choice = run.first + choice_at(place, run, chunks, job.order);
    return {choice, checked_unit(job.unit_N[choice], chunks.num_units)};
  };
  if (thread() == 0) num_tokens = 0;
  __syncthreads();
  count_tokens(run, chunks, job.unit_N, &num_tokens);
  __syncthreads();
  if (thread() == 0) limit = job.rule.rows_for(int64_t{num_tokens} * chunks.k);
  int* before_U = count_earlier(run, chunks.num_units, count_WU,
                                [&](int place) { return asking_at(place).unit; });
  Asking next = asking_at(run.begin + lane());
  for (int first = run.begin; first < run.end; first += kWarp) {
    const Asking asking = next;
    next = asking_at(first + kWarp + lane());
    const int before = enter(asking.unit, before_U);
    if (asking.choice >= 0) job.kept_unit_N[asking.choice] = before < limit ? asking.unit : -1;
  }
  __syncthreads();
  const int* asked_U = count_WU + (num_threads() / kWarp - 1) * chunks.num_units;
  for (int u = thread(); u < chunks.num_units; u += num_threads()) {
    const int64_t kept = asked_U[u] < limit ? asked_U[u] : limit;
    job.count_UC[int64_t{u} * chunks.count + blockIdx.x] = job.padded ? limit : kept;
  }
}

__global__ void count_kernel(Chunks chunks, const int64_t* unit_N, int64_t* count_UC) {
  extern __shared__ int count_U[];
  const Run run(chunks);
  for (int u = thread(); u < chunks.num_units; u += num_threads()) count_U[u] = 0;
  __syncthreads();
  for (int i = thread(); i < run.count; i += num_threads()) {
    const int unit = checked_unit(unit_N[run.first + i], chunks.num_units);
    if (unit >= 0) atomicAdd(count_U + unit, 1);
  }
  __syncthreads();
  for (int u = thread(); u < chunks.num_units; u += num_threads()) {
    count_UC[int64_t{u} * chunks.count + blockIdx.x] = count_U[u];
  }
}

__global__ void __launch_bounds__(kMostWarps* kWarp) place_kernel(Chunks chunks, Place job) {
  extern __shared__ int count_WU[];
  const Run run(chunks);
  const auto unit_at = [&](int place) {
    return place < run.end ? checked_unit(job.unit_N[run.first + place], chunks.num_units) : -1;
  };
  int* before_U = count_earlier(run, chunks.num_units, count_WU, unit_at);
  const int64_t first_token = int64_t{blockIdx.x} * (chunks.length / chunks.k);
  int next = unit_at(run.begin + lane());
  for (int first = run.begin; first < run.end; first += kWarp) {
    const int unit = next, place = first + lane();
    next = unit_at(place + kWarp);
    const int before = enter(unit, before_U);
    if (unit < 0) continue;
    const int64_t i = int64_t{unit} * chunks.count + blockIdx.x;
    const int64_t row = job.end_UC[i] - job.count_UC[i] + before;
    job.token_A[row] = first_token + place / chunks.k;
    job.choice_A[row] = run.first + place;
  }
}

/// Warps of a block: as many as have enough choices and room for their counts.
int num_warps(const Chunks& chunks) {
  const int wanted = (chunks.length + kWarpChoices - 1) / kWarpChoices;
  const int room = kSharedBytes / static_cast<int>(sizeof(int)) / chunks.num_units;
  return std::max(1, std::min({wanted, room, kMostWarps}));
}

size_t count_bytes(int warps, const Chunks& chunks) {
  return sizeof(int) * static_cast<size_t>(warps) * static_cast<size_t>(chunks.num_units);
}

}  // namespace

void launch_limit(const Chunks& chunks, const Limit& job, CUstream_st* stream) {
  if (chunks.count == 0) return;
  const int warps = num_warps(chunks);
  limit_kernel<<<static_cast<unsigned>(chunks.count), warps * kWarp, count_bytes(warps, chunks),
                 stream>>>(chunks, job);
}

void launch_count(const Chunks& chunks, const int64_t* unit_N, int64_t* count_UC,
                  CUstream_st* stream) {
  if (chunks.count == 0) return;
  count_kernel<<<static_cast<unsigned>(chunks.count), num_warps(chunks) * kWarp,
                 count_bytes(1, chunks), stream>>>(chunks, unit_N, count_UC);
}

void launch_place(const Chunks& chunks, const Place& job, CUstream_st* stream) {
  if (chunks.count == 0) return;
  const int warps = num_warps(chunks);
  place_kernel<<<static_cast<unsigned>(chunks.count), warps * kWarp, count_bytes(warps, chunks),
                 stream>>>(chunks, job);
}

}  // namespace shoal::capacity_cuda
