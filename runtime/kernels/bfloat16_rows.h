#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "runtime/device/bfloat16.h"
#include "runtime/kernels/vector_math.h"

/// Tiles of values for kernels that compute in float32 or float64: bfloat16 values are widened into
/// the caller's memory and narrowed from there; others are used in place.
namespace shoal {

/// Converts bfloat16 values to float32.
void widen(const Bfloat16* from, int64_t count, float* to);
/// Converts float32 values to bfloat16, rounding to nearest even.
void narrow(const float* from, int64_t count, Bfloat16* to);

template <class Value>
inline constexpr bool kIsNarrow = !std::is_same_v<Value, vector_math::Real<Value>>;

/// Returns the values to compute with; resizes `scratch` if needed.
template <class Value>
const vector_math::Real<Value>* wide(const Value* values, int64_t count,
                                     std::vector<vector_math::Real<Value>>& scratch) {
  if constexpr (kIsNarrow<Value>) {
    if (scratch.size() < static_cast<size_t>(count)) scratch.resize(static_cast<size_t>(count));
    widen(values, count, scratch.data());
    return scratch.data();
  } else {
    return values;
  }
}

/// Returns a buffer for results, which finish_wide then narrows into `values`.
template <class Value>
vector_math::Real<Value>* start_wide(Value* values, int64_t count,
                                     std::vector<vector_math::Real<Value>>& scratch) {
  if constexpr (kIsNarrow<Value>) {
    if (scratch.size() < static_cast<size_t>(count)) scratch.resize(static_cast<size_t>(count));
    return scratch.data();
  } else {
    return values;
  }
}

template <class Value>
void finish_wide(const vector_math::Real<Value>* results, int64_t count, Value* values) {
  if constexpr (kIsNarrow<Value>) narrow(results, count, values);
}

}  // namespace shoal
