#pragma once

#include <math.h>

#include <bit>
#include <cstdint>

#include "tests/support/emulated_gpu/emulated_gpu.h"

/// CUDA's language and device functions, as far as our kernels use them.
#define __global__
#define __host__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

inline void __syncthreads(emulated_gpu::Place place = emulated_gpu::Place::current()) {
  emulated_gpu::wait_for_block(place);
}

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       emulated_gpu::Place place = emulated_gpu::Place::current()) {
  emulated_gpu::exchange(mask, 0, place);
}

template <class Value>
Value __shfl_sync(unsigned mask, Value value, int lane, int width = 32,
                  emulated_gpu::Place place = emulated_gpu::Place::current()) {
  const int first = emulated_gpu::own_lane() & ~(width - 1);
  return emulated_gpu::exchange(mask, value, place)
      .template of<Value>(first + (lane & (width - 1)));
}

template <class Value>
Value __shfl_xor_sync(unsigned mask, Value value, int distance,
                      emulated_gpu::Place place = emulated_gpu::Place::current()) {
  const int other = (emulated_gpu::own_lane() ^ distance) & 31;
  return emulated_gpu::exchange(mask, value, place).template of<Value>(other);
}

/// Calls `body(lane, its value)` for the lanes of the mask.
template <class Value, class Body>
void for_lanes(const emulated_gpu::Lanes& lanes, const Body& body) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((lanes.mask() >> lane & 1) != 0) body(lane, lanes.template of<Value>(lane));
  }
}

template <class Value>
unsigned __match_any_sync(unsigned mask, Value value,
                          emulated_gpu::Place place = emulated_gpu::Place::current()) {
  unsigned same = 0;
  for_lanes<Value>(emulated_gpu::exchange(mask, value, place), [&](int lane, Value other) {
    same |= static_cast<unsigned>(other == value) << lane;
  });
  return same;
}

inline int __reduce_add_sync(unsigned mask, int value,
                             emulated_gpu::Place place = emulated_gpu::Place::current()) {
  int sum = 0;
  for_lanes<int>(emulated_gpu::exchange(mask, value, place), [&](int, int own) { sum += own; });
  return sum;
}

template <class Value>
Value atomicAdd(Value* place, std::type_identity_t<Value> value) {
  const Value before = *place;
  *place += value;
  return before;
}

[[noreturn]] inline void __trap() { emulated_gpu::fail("__trap()"); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
