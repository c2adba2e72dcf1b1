#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/device/cpu_clones.h"

/// Vectors of a fixed length for functions with SHOAL_CPU_CLONES. Each file includes it after a
/// `#pragma GCC optimize`, so that it holds for these as well.
namespace shoal {

/// Sixteen values, in as many vector registers as the machine needs for them.
template <class Real>
struct Simd {
  static constexpr int64_t kLanes = 16;
  typedef Real Lanes __attribute__((vector_size(kLanes * sizeof(Real))));
  using Integer = std::conditional_t<sizeof(Real) == 4, int32_t, int64_t>;
  typedef Integer Index __attribute__((vector_size(kLanes * sizeof(Integer))));

  Lanes lanes;

  static SHOAL_INLINE Simd load(const Real* from) {
    Simd result;
    __builtin_memcpy(&result.lanes, from, sizeof result.lanes);
    return result;
  }
  /// By halves: a chain of additions would wait four cycles for each.
  SHOAL_INLINE Real total() const {
    Lanes sum = lanes;
    sum += __builtin_shuffle(sum, Index{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
    sum += __builtin_shuffle(sum, Index{4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3});
    sum += __builtin_shuffle(sum, Index{2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1});
    return sum[0] + sum[1];
  }
};

}  // namespace shoal
