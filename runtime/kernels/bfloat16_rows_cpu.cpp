#include "runtime/device/cpu_clones.h"

#pragma GCC optimize("O3", "no-trapping-math")
#include "runtime/kernels/bfloat16_rows.h"

namespace shoal {

SHOAL_CPU_CLONES void widen(const Bfloat16* __restrict__ from, int64_t count,
                            float* __restrict__ to) {
  for (int64_t i = 0; i < count; ++i) to[i] = vector_math::real_of(from[i]);
}

SHOAL_CPU_CLONES void narrow(const float* __restrict__ from, int64_t count,
                             Bfloat16* __restrict__ to) {
  for (int64_t i = 0; i < count; ++i) vector_math::put(to[i], from[i]);
}

}  // namespace shoal
