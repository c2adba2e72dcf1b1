#pragma once

#include <cstdint>
#include <type_traits>

namespace shoal {

/// The upper half of a float32: what kernels and their launchers call bfloat16. Of the layout of
/// c10::BFloat16.
struct Bfloat16 {
  uint16_t bits;
};

/// What is computed with values of a type, and their sums are taken in: float32 of bfloat16.
template <class Value>
using SumOf = std::conditional_t<std::is_same_v<Value, Bfloat16>, float, Value>;

}  // namespace shoal
