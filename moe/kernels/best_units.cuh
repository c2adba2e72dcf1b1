#pragma once

#include <cuda_runtime.h>

#include "runtime/kernels/row_kernels.cuh"

/// Device code for a router's top-k. A row is a token's scores of all units (experts). blockDim.x
/// lanes of a warp, a power of 2, share it; rows of a block are numbered by threadIdx.y.
namespace shoal::device {

inline constexpr int kNoUnit = 0x7fffffff;  ///< the unit of an empty place

/// A unit and its score; ties go to the lower unit.
template <class Real>
struct Scored {
  Real score = -INFINITY;
  int unit = kNoUnit;

  __device__ bool goes_before(const Scored& other) const {
    return score > other.score || (score == other.score && unit < other.unit);
  }
};

/// Returns the score, with minus infinity for NaN.
template <class Real>
__device__ inline Real ordered(Real score) {
  return score != score ? Real(-INFINITY) : score;
}

/// Returns the best over a row's lanes to each lane. All lanes of the warp must call it.
template <class Real>
__device__ inline Scored<Real> best_of_lanes(Scored<Real> best) {
  for (int distance = static_cast<int>(blockDim.x) / 2; distance > 0; distance /= 2) {
    const Scored<Real> other{__shfl_xor_sync(kAllLanes, best.score, distance),
                             __shfl_xor_sync(kAllLanes, best.unit, distance)};
    if (other.goes_before(best)) best = other;
  }
  return best;
}

/// The kMost best that one lane has seen, in descending order. Each lane enters units of its own;
/// k <= kMost calls of take() then return the row's best, in order.
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

  /// Removes and returns the best over the row's lanes. All lanes of the warp must call it.
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
