#pragma once

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  uint16_t bits;
};

/// To the nearest, ties to even; a NaN becomes CUDA's.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  if (value != value) return {0x7fff};
  const auto bits = std::bit_cast<uint32_t>(value);
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
