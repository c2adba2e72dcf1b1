#pragma once

#include <cstdint>
#include <type_traits>

#include "runtime/device/cpu_clones.h"

/// Vectors of a fixed length for CPU loops that SHOAL_CPU_CLONES compiles for several instruction
/// sets. Include this file after a `#pragma GCC optimize`, which then applies to it.
namespace shoal {

/// Sixteen values, in as many vector registers as the machine needs.
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
  /// Returns the sum of the lanes. Adds halves, since a chain of 15 additions would take longer.
  SHOAL_INLINE Real total() const {
    Lanes sum = lanes;
    sum += __builtin_shuffle(sum, Index{8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
    sum += __builtin_shuffle(sum, Index{4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3});
    sum += __builtin_shuffle(sum, Index{2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1});
    return sum[0] + sum[1];
  }
};

/// Writes sums[i].total() to out[i] for i < 8, bit for bit: each step folds two vectors into one.
SHOAL_INLINE void total_eight(const Simd<float>* sums, float* out) {
  using Lanes = Simd<float>::Lanes;
  using Index = Simd<float>::Index;
  Lanes halves[4], quarters[2];
  for (int i = 0; i < 4; ++i) {
    const Lanes a = sums[2 * i].lanes, b = sums[2 * i + 1].lanes;
    halves[i] =
        __builtin_shuffle(a, b, Index{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}) +
        __builtin_shuffle(a, b,
                          Index{8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31});
  }
  for (int i = 0; i < 2; ++i) {
    const Lanes a = halves[2 * i], b = halves[2 * i + 1];
    quarters[i] =
        __builtin_shuffle(a, b, Index{0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27}) +
        __builtin_shuffle(a, b, Index{4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31});
  }
  const Lanes a = quarters[0], b = quarters[1];
  const Lanes pairs =
      __builtin_shuffle(a, b, Index{0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29}) +
      __builtin_shuffle(a, b, Index{2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31});
  const Lanes totals =
      __builtin_shuffle(pairs, Index{0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14}) +
      __builtin_shuffle(pairs, Index{1, 3, 5, 7, 9, 11, 13, 15, 1, 3, 5, 7, 9, 11, 13, 15});
  __builtin_memcpy(out, &totals, 8 * sizeof(float));
}

}  // namespace shoal
