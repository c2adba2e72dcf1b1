#pragma once

#include <cstdint>
#include <type_traits>

namespace shoal {

/// bfloat16, the upper half of a float32, for kernels, whose sources include no torch headers. Has
/// the layout of c10::BFloat16.
struct Bfloat16 {
  uint16_t bits;
};

/// The type that values are computed and summed in: float32 for bfloat16.
template <class Value>
using Wide = std::conditional_t<std::is_same_v<Value, Bfloat16>, float, Value>;

}  // namespace shoal
