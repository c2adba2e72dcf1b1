#pragma once

#include <cuda_runtime.h>

#include "runtime/kernels/row_kernels.cuh"

/// Top-k of a row, computed by the lanes that share it; ties go to the lower unit.
namespace shoal::device {

inline constexpr int kNoUnit = 0x7fffffff;

template <class Real>
struct Scored {
  Real score = -INFINITY;
  int unit = kNoUnit;

  __device__ bool goes_before(const Scored& other) const {
    return score > other.score || (score == other.score && unit < other.unit);
  }
};

/// The score as it is ordered: NaN counts as minus infinity.
template <class Real>
__device__ inline Real ordered(Real score) {
  return score != score ? Real(-INFINITY) : score;
}

/// The best over a row's lanes, returned to each; all lanes of the warp must call it.
template <class Real>
__device__ inline Scored<Real> best_of_lanes(Scored<Real> best) {
  for (int distance = static_cast<int>(blockDim.x) / 2; distance > 0; distance /= 2) {
    const Scored<Real> other{__shfl_xor_sync(kAllLanes, best.score, distance),
                             __shfl_xor_sync(kAllLanes, best.unit, distance)};
    if (other.goes_before(best)) best = other;
  }
  return best;
}

/// The best kMost that one lane has seen, in descending order.
template <int kMost, class Real>
struct LaneBest {
  Scored<Real> place[kMost];

  __device__ void enter(const Scored<Real>& scored) {
    if (!scored.goes_before(place[kMost - 1])) return;
#pragma unroll
    for (int i = kMost - 1; i >= 0; --i) {
      if (!scored.goes_before(place[i])) continue;
      if (i + 1 < kMost) place[i + 1] = place[i];
      place[i] = scored;
    }
  }

  /// Removes and returns the best over all lanes.
  __device__ Scored<Real> take() {
    const Scored<Real> best = best_of_lanes(place[0]);
    if (best.unit == place[0].unit) {
#pragma unroll
      for (int i = 0; i + 1 < kMost; ++i) place[i] = place[i + 1];
      place[kMost - 1] = Scored<Real>{};
    }
    return best;
  }
};

}  // namespace shoal::device
