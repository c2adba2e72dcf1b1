#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "runtime/device/bfloat16.h"

/// Shared code of kernels over rows. A power of two of a warp's lanes share a row: threadIdx.x
/// counts lanes, threadIdx.y the rows of a block.
namespace shoal::device {

inline constexpr int kThreads = 256;
inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Stops the kernel with an error unless `ok`, the caller's contract.
__device__ inline void require(bool ok) {
  if (!ok) __trap();
}

template <class Real>
using Sum = Wide<Real>;

template <class Real>
__device__ inline Sum<Real> widen(Real value) {
  if constexpr (sizeof(Real) == 2) {
    return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
  } else {
    return value;
  }
}

template <class Real>
__device__ inline Real narrow(Sum<Real> value) {
  if constexpr (sizeof(Real) == 2) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  } else {
    return value;
  }
}

/// Values that are loaded and stored in one access.
template <class Real, int kCount>
struct alignas(sizeof(Real) * kCount) Pack {
  Real value[kCount];
};
template <class Real>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(Real));

/// True if rows of `bytes` bytes from these pointers can be read 16 bytes at a time.
template <class... Pointers>
bool is_aligned(int64_t bytes, const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) | static_cast<uintptr_t>(bytes)) % 16 == 0;
}

/// Threads and blocks for `num_rows` rows of `packs` packs.
struct RowLaunch {
  dim3 grid, block;
  RowLaunch(int64_t num_rows, int64_t packs) {
    int lanes = 1;
    while (lanes < kWarp && lanes < packs) lanes *= 2;
    block = dim3(lanes, kThreads / lanes);
    grid = dim3(static_cast<unsigned>((num_rows + block.y - 1) / block.y));
  }
};

/// Calls `body(launch, packs of a row, kPack as a constant)` for rows of `width` values, with packs
/// of 16 bytes if all pointers and the width allow it, else of one value.
template <class Real, class Body, class... Pointers>
void with_packs(int64_t num_rows, int64_t width, const Body& body, const Pointers*... pointers) {
  constexpr int kPack = kPackSize<Real>;
  if (num_rows == 0) return;
  if (is_aligned(width * static_cast<int64_t>(sizeof(Real)), pointers...)) {
    body(RowLaunch(num_rows, width / kPack), width / kPack, std::integral_constant<int, kPack>{});
  } else {
    body(RowLaunch(num_rows, width), width, std::integral_constant<int, 1>{});
  }
}

__device__ inline int64_t own_row() { return int64_t{blockIdx.x} * blockDim.y + threadIdx.y; }

/// Sum over a row's lanes, in a fixed order; all lanes of the warp must call it.
template <class Real>
__device__ inline Real sum_lanes(Real value) {
  for (int distance = static_cast<int>(blockDim.x) / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

template <class Real>
__device__ inline Real max_lanes(Real value) {
  for (int distance = static_cast<int>(blockDim.x) / 2; distance > 0; distance /= 2) {
    const Real other = __shfl_xor_sync(kAllLanes, value, distance);
    value = other > value ? other : value;
  }
  return value;
}

/// The value of one lane of the row.
template <class Value>
__device__ inline Value of_lane(Value value, int lane) {
  return __shfl_sync(kAllLanes, value, lane, static_cast<int>(blockDim.x));
}

/// exp(logit - highest), in float32 clamped at e^-87, as on the CPU; NaN for a NaN or infinite
/// logit. The difference of two finite logits may be infinite.
__device__ inline float exp_below(float logit, float highest) {
  const float below = logit - highest;
  return expf(below < -87.0f ? -87.0f : below) + 0.0f * logit;
}
__device__ inline double exp_below(double logit, double highest) {
  return exp(logit - highest) + 0.0 * logit;
}

}  // namespace shoal::device
