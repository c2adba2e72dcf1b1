#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "runtime/device/bfloat16.h"

/// Shared code of CUDA kernels over rows, such as the tokens of a layer. 1, 2, 4, ... or 32 lanes
/// of a warp share a row: threadIdx.x is the lane in the row, threadIdx.y the row in the block.
namespace shoal::device {

inline constexpr int kThreads = 256;
inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Ends the kernel with an error unless `ok`; for conditions that callers must meet.
__device__ inline void require(bool ok) {
  if (!ok) __trap();
}

/// The type in which values are computed: float for bfloat16, else Real.
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

/// A pack: neighbouring values of a row that a thread loads and stores in one access.
template <class Real, int kCount>
struct alignas(sizeof(Real) * kCount) Pack {
  Real value[kCount];
};
/// Values in a pack of 16 bytes.
template <class Real>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(Real));

/// Pack number `pack` of a row, in the type in which values are computed. Zeros without a row.
template <int kCount, class Real>
__device__ inline Pack<Sum<Real>, kCount> load_wide(const Real* row, int64_t pack) {
  Pack<Sum<Real>, kCount> wide = {};
  if (row == nullptr) return wide;
  const auto values = reinterpret_cast<const Pack<Real, kCount>*>(row)[pack];
#pragma unroll
  for (int i = 0; i < kCount; ++i) wide.value[i] = widen(values.value[i]);
  return wide;
}

/// Rounds a pack to the type of a row and stores it at place `pack`.
template <int kCount, class Real>
__device__ inline void store_narrow(Real* row, int64_t pack, const Pack<Sum<Real>, kCount>& wide) {
  Pack<Real, kCount> values;
#pragma unroll
  for (int i = 0; i < kCount; ++i) values.value[i] = narrow<Real>(wide.value[i]);
  reinterpret_cast<Pack<Real, kCount>*>(row)[pack] = values;
}

/// True if rows of `bytes` bytes from these pointers can be read 16 bytes at a time.
template <class... Pointers>
bool is_aligned(int64_t bytes, const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) | static_cast<uintptr_t>(bytes)) % 16 == 0;
}

/// Grid and block of a launch for `num_rows` rows of `packs` packs each.
struct RowLaunch {
  dim3 grid, block;
  RowLaunch(int64_t num_rows, int64_t packs) {
    int lanes = 1;
    while (lanes < kWarp && lanes < packs) lanes *= 2;
    block = dim3(lanes, kThreads / lanes);
    grid = dim3(static_cast<unsigned>((num_rows + block.y - 1) / block.y));
  }
};

/// Calls `body(RowLaunch, packs per row, integral_constant<int, values per pack>)` for rows of
/// `width` values. Packs have 16 bytes if all pointers and rows are aligned to 16 bytes, else one
/// value. Does not call `body` if there are no rows.
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

/// The row of this thread; in the last block it may be past the end.
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

/// exp(logit - highest), the numerator of a softmax. In float32 at least e^-87, as on the CPU. NaN
/// if `logit` is NaN or infinite; finite logits never give NaN, even if the difference overflows.
__device__ inline float exp_below(float logit, float highest) {
  const float below = logit - highest;
  return expf(below < -87.0f ? -87.0f : below) + 0.0f * logit;
}
__device__ inline double exp_below(double logit, double highest) {
  return exp(logit - highest) + 0.0 * logit;
}

}  // namespace shoal::device
