#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/device/bfloat16.h"

/// Functions for vectorised loops on CPUs: no branches, always inlined. Include this file after a
/// `#pragma GCC optimize`, which then applies to it.
namespace shoal::vector_math {

/// x clamped to [-87, 88.3]; NaN becomes one of the limits.
inline __attribute__((always_inline)) float limit_exponent(float x) {
  // Compares bits: a comparison of floats would become a branch.
  constexpr int32_t kUpper = __builtin_bit_cast(int32_t, 88.3f);
  constexpr uint32_t kLower = __builtin_bit_cast(uint32_t, -87.0f);
  const int32_t bits = __builtin_bit_cast(int32_t, x);
  const auto below_upper = static_cast<uint32_t>(bits < kUpper ? bits : kUpper);
  return __builtin_bit_cast(float, below_upper < kLower ? below_upper : kLower);
}

/// `negative` if x has its sign bit set, else `positive`.
inline __attribute__((always_inline)) float by_sign(float x, float negative, float positive) {
  const int32_t mask = __builtin_bit_cast(int32_t, x) >> 31;
  return __builtin_bit_cast(float, (mask & __builtin_bit_cast(int32_t, negative)) |
                                       (~mask & __builtin_bit_cast(int32_t, positive)));
}

/// exp of x clamped to [-87, 88.3], with a relative error of at most 2^-23. NaN gives a finite
/// number: callers that must propagate NaN take it from the argument.
inline __attribute__((always_inline)) float exp_of(float x) {
  x = limit_exponent(x);
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504f + kShift;
  const float n = shifted - kShift;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int32_t exponent =
      __builtin_bit_cast(int32_t, shifted) - __builtin_bit_cast(int32_t, kShift);
  return p * __builtin_bit_cast(float, (exponent + 127) << 23);
}

inline __attribute__((always_inline)) double exp_of(double x) { return std::exp(x); }

/// The type in which values of type `Value` are computed: float for bfloat16, else Value.
template <class Value>
using Real = Wide<Value>;

/// Returns a stored value in the type it is computed in; exact.
template <class Value>
inline __attribute__((always_inline)) Real<Value> real_of(Value value) {
  if constexpr (sizeof(Value) == 2) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(value.bits) << 16);
  } else {
    return value;
  }
}

/// Stores a result; bfloat16 is rounded to nearest even.
template <class Value>
inline __attribute__((always_inline)) void put(Value& to, Real<Value> x) {
  if constexpr (sizeof(Value) == 2) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;  // would be carried to infinity
    to.bits = static_cast<uint16_t>(is_nan ? 0x7fc0u : rounded);
  } else {
    to = x;
  }
}

}  // namespace shoal::vector_math
