#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "runtime/device/bfloat16.h"
#include "runtime/kernels/vector_math.h"

/// Lets one CPU kernel serve float32, float64 and bfloat16 tensors: bfloat16 values are converted
/// to float32 in a scratch buffer and results back; values of other types are used in place.
namespace shoal {

/// Converts bfloat16 values to float32.
void widen(const Bfloat16* from, int64_t count, float* to);
/// Converts float32 values to bfloat16, rounding to nearest even.
void narrow(const float* from, int64_t count, Bfloat16* to);

/// True for bfloat16, whose values are computed as float32.
template <class Value>
inline constexpr bool kIsNarrow = !std::is_same_v<Value, vector_math::Real<Value>>;

/// Returns the `count` values to compute with: `values` itself, or for bfloat16 a float32 copy in
/// `scratch`, which grows if needed.
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

/// Returns the memory to write `count` results to: `values` itself, or for bfloat16 `scratch`. Call
/// finish_wide once they are written.
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

/// For bfloat16 rounds the results into `values`; for other types they are there already.
template <class Value>
void finish_wide(const vector_math::Real<Value>* results, int64_t count, Value* values) {
  if constexpr (kIsNarrow<Value>) narrow(results, count, values);
}

}  // namespace shoal
